//! A configuration that is read anew: all of it, or nothing.

use std::fs;

use client::ClientError;

use crate::support::{ADMIN, CONFIG, Fake, OPERATE, READ, World, private};

fn why(error: &ClientError) -> String {
    let source = std::error::Error::source(error).map(|s| s.to_string());
    format!("{error} {}", source.unwrap_or_default())
}

#[test]
fn it_is_taken_with_tokens_and_certificate_or_refused_whole() {
    let world = World::start(Fake::new(3));
    let tokens = world.dir.path().join("tokens");
    let before = world.running.fingerprint().unwrap();
    let write = |text: &str| fs::write(world.dir.path().join(CONFIG), text).unwrap();
    let replace_secrets = || {
        let newer = "read reader newer-0123456789abcdef\nadmin root admin-0123456789abcdef\n";
        private(&tokens, newer);
        fs::remove_file(world.dir.path().join("controller.key")).unwrap();
    };

    // A file that is wrong: by its name, line and key; new secrets are not taken either.
    write("window = \"10s\"\n\n[policy]\nspace_hihg = 0.9\n");
    replace_secrets();
    let refused = world.remote(ADMIN).reload().unwrap_err();
    for expected in [
        "terrace.toml:4",
        "policy.space_hihg",
        "did you mean",
        "nothing has changed",
    ] {
        assert!(why(&refused).contains(expected), "{refused:?}");
    }
    assert_eq!(world.running.fingerprint(), Some(before));
    world.remote(READ).status().unwrap();

    // What the controller does not take changes nothing either.
    write("strategy = \"idt\"\n");
    world.fake.lock().unwrap().refuses_reload = Some("x.toml:1: window: cannot change".into());
    let refused = world.remote(ADMIN).reload().unwrap_err();
    assert!(why(&refused).contains("window: cannot change; nothing has changed"));
    world.remote(READ).status().unwrap();

    // Whoever may not is refused, and leaves no trace.
    assert!(world.remote(OPERATE).reload().is_err());

    world.fake.lock().unwrap().refuses_reload = None;
    let done = world.remote(ADMIN).reload().unwrap();
    assert!(
        done.message
            .starts_with("strategy idt; tokens: added read reader; removed read reader, operate"),
        "{done:?}"
    );
    assert!(
        done.message.contains("the certificate has changed"),
        "{done:?}"
    );
    assert_ne!(world.running.fingerprint(), Some(before));
    assert!(world.remote(READ).status().is_err(), "its token is gone");
    world.remote("newer-0123456789abcdef").status().unwrap();
    assert!(
        world
            .fake
            .lock()
            .unwrap()
            .actors
            .contains(&"root".to_string())
    );

    // As the signal has it.
    assert_eq!(world.running.reload("SIGHUP").unwrap(), "strategy idt");
    assert_eq!(world.fake.lock().unwrap().actors.last().unwrap(), "SIGHUP");
    fs::remove_file(world.dir.path().join(CONFIG)).unwrap();
    assert!(
        world
            .running
            .reload("SIGHUP")
            .unwrap_err()
            .contains("nothing has changed")
    );
}
