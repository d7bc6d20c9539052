use super::fake::{Asked, Fake, Guard};
use super::*;
use crate::transport;

const LOGIN: &str = "fake:not-a-password";

fn credentials() -> Credentials {
    let config = br#"{"auths": {"r.example.com": {"username": "fake", "password": "not-a-password"}}}"#;
    Credentials::parse(config).unwrap()
}

fn repository(fake: &Fake, credentials: &Credentials) -> Repository {
    Repository::new(fake.transport(), "r.example.com/flows/mend", credentials).unwrap()
}

fn full() -> Fake {
    let fake = Fake::default();
    fake.put_manifest("flows/mend", "1", "a manifest");
    fake.put_blob("flows/mend", "sha256:aa", "a blob");
    fake
}

fn asked(host: &str, path: &str, authorized: bool) -> Asked {
    Asked { host: host.to_owned(), path: path.to_owned(), authorized }
}

fn bearer(login: Option<&str>) -> Guard {
    let login = login.map(str::to_owned);
    Guard::Bearer { realm: "https://auth.example.com/token".to_owned(), login }
}

#[tokio::test]
async fn what_is_open_is_read_without_a_word_about_us() {
    let fake = full();
    let mut repository = repository(&fake, &credentials());
    assert_eq!(repository.manifest("1", 100).await.unwrap(), "a manifest");
    assert_eq!(repository.blob("sha256:aa", 100).await.unwrap(), "a blob");
    assert!(fake.asked().iter().all(|it| !it.authorized));
    let missing = repository.manifest("2", 100).await.unwrap_err();
    let text =
        "GET r.example.com/v2/flows/mend/manifests/2: not found: MANIFEST_UNKNOWN: says the fake registry";
    assert_eq!((missing.to_string().as_str(), missing.passes()), (text, None));
}

#[tokio::test]
async fn a_challenge_is_answered_with_a_token_for_everybody_a_token_for_us_or_a_password() {
    for guard in [bearer(None), bearer(Some(LOGIN)), Guard::Basic(LOGIN.to_owned())] {
        let fake = full();
        fake.guard(guard.clone());
        let mut known = repository(&fake, &credentials());
        assert_eq!(known.manifest("1", 100).await.unwrap(), "a manifest", "{guard:?}");
        fake.asked();
        assert_eq!(known.blob("sha256:aa", 100).await.unwrap(), "a blob");
        assert_eq!(fake.asked().len(), 1, "what let us in is kept");
        let stranger = repository(&fake, &Credentials::default()).manifest("1", 100).await;
        if guard == bearer(None) {
            stranger.unwrap();
        } else {
            let refused = stranger.unwrap_err().to_string();
            assert!(refused.contains("unauthorized"), "{refused}");
        }
    }
}

#[tokio::test]
async fn where_blobs_are_kept_elsewhere_our_token_stays_here() {
    let fake = full();
    fake.guard(bearer(Some(LOGIN)));
    fake.keep_blobs_at("https://storage.example.com");
    let mut repository = repository(&fake, &credentials());
    assert_eq!(repository.blob("sha256:aa", 100).await.unwrap(), "a blob");
    let path = "/v2/flows/mend/blobs/sha256:aa";
    let all = [
        asked("r.example.com", path, false),
        asked("auth.example.com", "/token", true),
        asked("r.example.com", path, true),
        asked("storage.example.com", path, false),
    ];
    assert_eq!(fake.asked(), all);
}

#[tokio::test]
async fn nobody_sends_us_to_this_machine_or_off_tls_or_round_in_circles() {
    for (place, why) in [
        ("http://storage.example.com", "not over TLS"),
        ("https://127.0.0.1:1", "an address of this machine"),
        ("http://localhost:1", "an address of this machine"),
        ("https://user@storage.example.com", "a user in it"),
        ("ftp://storage.example.com", "not over TLS"),
        ("https://r.example.com", "and so on"),
    ] {
        let fake = full();
        // Told by its whole address, the fake does not know itself: it sends on for ever.
        fake.keep_blobs_at(&if place.ends_with("r.example.com") {
            format!("{place}/")
        } else {
            place.to_owned()
        });
        let error = repository(&fake, &credentials()).blob("sha256:aa", 100).await.unwrap_err();
        assert!(error.to_string().contains(why), "{place}: {error}");
    }
    let fake = full();
    fake.guard(Guard::Bearer { realm: "http://auth.example.com/token".to_owned(), login: None });
    let error = repository(&fake, &credentials()).manifest("1", 100).await.unwrap_err();
    assert!(matches!(error, Error::Astray { .. }), "{error}");
    assert_eq!(fake.asked().len(), 1, "a password is not sent where everybody can listen");
}

#[tokio::test]
async fn too_much_is_not_taken_and_what_passes_is_told_apart() {
    let fake = full();
    let mut repository = repository(&fake, &credentials());
    let error = repository.blob("sha256:aa", 3).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET r.example.com/v2/flows/mend/blobs/sha256:aa: too large: more than 3 bytes"
    );
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
        fake.fail_next(status);
        assert_eq!(repository.manifest("1", 100).await.unwrap_err().passes(), Some(None));
    }
    for status in [StatusCode::FORBIDDEN, StatusCode::GONE, StatusCode::NOT_MODIFIED] {
        fake.fail_next(status);
        assert_eq!(repository.manifest("1", 100).await.unwrap_err().passes(), None);
    }
}

#[tokio::test]
async fn on_loopback_it_is_plain_http_with_a_limit_on_what_comes() {
    let fake = full();
    fake.guard(Guard::Basic(LOGIN.to_owned()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let served = tokio::spawn(fake.clone().serve(listener));
    let config =
        format!(r#"{{"auths": {{"{host}": {{"username": "fake", "password": "not-a-password"}}}}}}"#);
    let credentials = Credentials::parse(config.as_bytes()).unwrap();
    let transport = transport::https().unwrap();
    let mut repository = Repository::new(transport, &format!("{host}/flows/mend"), &credentials).unwrap();
    assert_eq!(repository.manifest("1", 100).await.unwrap(), "a manifest");
    let error = repository.manifest("1", 3).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { at_most: 3, .. }), "{error}");
    served.abort();
    let _ = served.await;
    drop(fake);
    let nobody = Repository::new(transport::https().unwrap(), "127.0.0.1:1/x", &credentials);
    let error = nobody.unwrap().manifest("1", 100).await.unwrap_err();
    assert_eq!(error.passes(), Some(None), "{error}");
}

#[test]
fn what_is_no_name_of_a_repository_is_not_asked_for() {
    let transport = Fake::default().transport();
    let new = |name: &str| Repository::new(transport.clone(), name, &Credentials::default());
    for good in ["r.example.com/a", "localhost:5000/a/b-c--d/e__f.g_h", "docker.io/library/busybox"] {
        assert!(new(good).is_ok(), "{good}");
    }
    let long = format!("r.example.com/{}", "a".repeat(256));
    for bad in [
        "r.example.com",
        "r.example.com/",
        "r.example.com/a/../b",
        "r.example.com/A",
        "r.example.com/a:1/b",
        "r.example.com/-a",
        "r.example.com/a..b",
        "r.example.com/a___b",
        "r.example.com/a%2fb",
        "/a",
        "u@h/a",
        &long,
    ] {
        assert!(new(bad).is_err(), "{bad}");
    }
    assert_eq!(new("docker.io/library/busybox").unwrap().origin.authority, "registry-1.docker.io");
}
