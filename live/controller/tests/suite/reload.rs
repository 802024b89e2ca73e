//! Tests of reloads: either all changes of the configuration take effect, or none.

use std::fs;

use client::ClientError;

use crate::support::{ADMIN, CONFIG, Fake, OPERATE, READ, World, private};

fn why(error: &ClientError) -> String {
    let source = std::error::Error::source(error).map(|s| s.to_string());
    format!("{error} {}", source.unwrap_or_default())
}

#[test]
fn configuration_is_reloaded_with_secrets_or_refused_completely() {
    let world = World::start(Fake::new(3));
    let tokens = world.dir.path().join("tokens");
    let before = world.running.fingerprint().unwrap();
    let write = |text: &str| fs::write(world.dir.path().join(CONFIG), text).unwrap();
    let replace_secrets = || {
        let newer = "read reader newer-0123456789abcdef\nadmin root admin-0123456789abcdef\n";
        private(&tokens, newer);
        fs::remove_file(world.dir.path().join("controller.key")).unwrap();
    };

    // An invalid file is reported with its name, line and key; the new secrets do not take effect either.
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

    // If the controller rejects the configuration, nothing changes either.
    write("strategy = \"idt\"\n");
    world.fake.lock().unwrap().refuses_reload = Some("x.toml:1: window: cannot change".into());
    let refused = world.remote(ADMIN).reload().unwrap_err();
    assert!(why(&refused).contains("window: cannot change; nothing has changed"));
    world.remote(READ).status().unwrap();

    // A caller without the right is rejected, and leaves no trace in the audit.
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

    // A reload by signal has this actor.
    assert_eq!(world.running.reload("SIGHUP").unwrap(), "strategy idt");
    assert_eq!(world.fake.lock().unwrap().actors.last().unwrap(), "SIGHUP");
    fs::remove_file(world.dir.path().join(CONFIG)).unwrap();
    assert!(
        world
            .running
            .reload("SIGHUP")
            .unwrap_err()
            .to_string()
            .contains("nothing has changed")
    );
}
