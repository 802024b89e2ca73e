//! URIs: valid ones, refused ones, and round trips.

use nbd::{Address, TlsWords, Uri};
use proptest::prelude::*;

fn tcp(host: &str, port: u16, export: &str) -> Uri {
    Uri {
        address: Address::Tcp {
            host: host.into(),
            port,
        },
        export: export.into(),
        tls: None,
    }
}

fn unix(path: &str, export: &str) -> Uri {
    Uri {
        address: Address::Unix(path.into()),
        export: export.into(),
        tls: None,
    }
}

fn with(uri: Uri, tls: TlsWords) -> Uri {
    Uri {
        tls: Some(tls),
        ..uri
    }
}

#[test]
fn tls_uris_parse() {
    let certificates = |dir: &str| TlsWords {
        certificates: Some(dir.into()),
        ..TlsWords::default()
    };
    let psk = |name: Option<&str>| TlsWords {
        psk_file: Some("/etc/keys.psk".into()),
        username: name.map(Into::into),
        ..TlsWords::default()
    };
    for (text, expected) in [
        (
            "nbds://h/x",
            with(tcp("h", 10809, "x"), TlsWords::default()),
        ),
        (
            "NBDS://h/x?tls-certificates=/etc/pki/nbd",
            with(tcp("h", 10809, "x"), certificates("/etc/pki/nbd")),
        ),
        (
            "nbds://10.0.0.1:1/x?tls-certificates=/a%20b&tls-hostname=nas",
            with(
                tcp("10.0.0.1", 1, "x"),
                TlsWords {
                    hostname: Some("nas".into()),
                    ..certificates("/a b")
                },
            ),
        ),
        (
            "nbds://alice@h/x?tls-psk-file=/etc/keys.psk",
            with(tcp("h", 10809, "x"), psk(Some("alice"))),
        ),
        (
            "nbds+unix:///x?tls-username=alice&socket=/s&tls-psk-file=/etc/keys.psk",
            with(unix("/s", "x"), psk(Some("alice"))),
        ),
        (
            "nbds+unix://a%40b@/x?socket=/s&tls-psk-file=/etc/keys.psk",
            with(unix("/s", "x"), psk(Some("a@b"))),
        ),
        (
            "nbds://h/?tls-psk-file=/etc/keys.psk",
            with(tcp("h", 10809, ""), psk(None)),
        ),
    ] {
        let uri: Uri = text.parse().expect(text);
        assert_eq!(uri, expected, "{text}");
        assert_eq!(uri.to_string().parse(), Ok(expected), "{text}");
    }
}

#[test]
fn nbd_uris_parse() {
    for (text, expected) in [
        ("nbd://example.com", tcp("example.com", 10809, "")),
        ("nbd://example.com/", tcp("example.com", 10809, "")),
        ("NBD://example.com/disk", tcp("example.com", 10809, "disk")),
        ("nbd://example.com:1/disk", tcp("example.com", 1, "disk")),
        ("nbd://example.com:/disk", tcp("example.com", 10809, "disk")),
        (
            "nbd://example.com//disk",
            tcp("example.com", 10809, "/disk"),
        ),
        ("nbd://h/hello%20world", tcp("h", 10809, "hello world")),
        ("nbd://h/gr%C3%B6ße?", tcp("h", 10809, "größe")),
        ("nbd://10.0.0.1:10810/a/b", tcp("10.0.0.1", 10810, "a/b")),
        ("nbd://[::1]:65535/x", tcp("::1", 65535, "x")),
        (
            "nbd+unix:///?socket=/run/nbd.sock",
            unix("/run/nbd.sock", ""),
        ),
        (
            "nbd+unix:///disk?socket=nbd%26.sock",
            unix("nbd&.sock", "disk"),
        ),
    ] {
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
}

#[test]
fn invalid_uris_are_refused_with_the_reason() {
    for (text, why) in [
        ("disk.img", "not a URI"),
        ("http://host/", "unknown scheme \"http\""),
        ("nbds+vsock:///x", "unknown scheme"),
        ("nbds+ssh:///x", "unknown scheme"),
        ("nbd://h/x?tls-certificates=/d", "need nbds://"),
        ("nbd+unix:///x?socket=/s&tls-username=a", "need nbds://"),
        (
            "nbds://h/x?tls-verify-peer=false",
            "unknown parameter \"tls-verify-peer\"",
        ),
        (
            "nbds://h/x?tls-certificates=",
            "tls-certificates: not a file path",
        ),
        (
            "nbds://h/x?tls-certificates=a&tls-certificates=b",
            "given twice",
        ),
        (
            "nbds://h/x?tls-certificates=a&tls-psk-file=b",
            "use either certificates",
        ),
        ("nbds://a@h/x?tls-username=b", "user: given twice"),
        ("nbds://h/x?socket=/s", "a socket needs"),
        ("nbd+vsock:///x", "unknown scheme"),
        ("nbd:///disk", "host: not a host name"),
        ("nbd://::1/disk", "host: not a host name"),
        ("nbd://[::1/disk", "closing bracket is missing"),
        ("nbd://[host]/disk", "not an IPv6 address"),
        ("nbd://[::1]x/disk", "after the bracket"),
        ("nbd://user@host/disk", "user name"),
        ("nbd://host:0/disk", "port: not a number"),
        ("nbd://host:+1/disk", "port: not a number"),
        ("nbd://host:65536/disk", "port: not a number"),
        ("nbd://host/%", "export: % needs two"),
        ("nbd://host/%+1", "export: % needs two"),
        ("nbd://host/%C3", "export: not UTF-8"),
        ("nbd://host/%00", "export: contains NUL"),
        ("nbd://host/a b", "must be written as %XX"),
        ("nbd://host/a#b", "fragment"),
        ("nbd://host/a?socket=/x", "a socket needs nbd+unix"),
        (
            "nbd://host/a?tls-type=psk",
            "unknown parameter \"tls-type\"",
        ),
        ("nbd+unix:///a", "socket=path is missing"),
        ("nbd+unix:///a?socket=", "not a file path"),
        ("nbd+unix:///a?socket=%00x", "not a file path"),
        ("nbd+unix:///a?socket=x&socket=y", "given twice"),
        ("nbd+unix://host/a?socket=x", "a Unix socket has no host"),
    ] {
        let error = text.parse::<Uri>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(
        format!("nbd://h/{}", "x".repeat(4097))
            .parse::<Uri>()
            .is_err()
    );
}

proptest! {
    #[test]
    fn uris_round_trip(export in "[^\0]{0,30}", path in "[^\0]{1,30}", port in 1..=u16::MAX, v6: bool) {
        let host = if v6 { "fe80::1" } else { "host-1.example" };
        let tls = TlsWords {
            certificates: v6.then(|| path.clone().into()),
            psk_file: (!v6).then(|| path.clone().into()),
            username: Some(export.clone()),
            hostname: (port > 99).then(|| export.clone()),
        };
        let plain = [tcp(host, port, &export), unix(&path, &export)];
        let secured = plain.clone().map(|uri| with(uri, tls.clone()));
        for uri in plain.into_iter().chain(secured) {
            let text = uri.to_string();
            prop_assert!(text.is_ascii());
            prop_assert_eq!(text.parse(), Ok(uri), "{}", text);
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,60}", tail in "[/?&=%:@\\[\\]a-f0-9]{0,30}") {
        for text in [text, format!("nbd://{tail}"), format!("nbd+unix:///{tail}?socket={tail}")] {
            if let Ok(uri) = text.parse::<Uri>() {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
