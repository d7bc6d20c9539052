//! The same over a real socket: TLS, an Enterprise prefix, a certificate that only we trust.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use pawl_integrations::github::client::Parts;
use pawl_integrations::github::fake::{self, Fault, Trouble};
use pawl_integrations::github::{Address, Client, Error};
use pawl_integrations::transport;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;

use crate::ground::{Ground, app, check_run};

/// Serves the fake over TLS; the address, and what a client must trust.
async fn served(ground: &Ground) -> (String, rustls::ClientConfig) {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(issued.cert.der().to_vec());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(fake::serve(listener, ground.fake.clone(), Some(Arc::new(server)), std::future::pending()));
    (format!("https://localhost:{port}/api/v3"), client)
}

fn client(ground: &Ground, url: &str, tls: rustls::ClientConfig) -> Client {
    Client::new(Parts {
        owner: "acme".to_owned(),
        name: "infra".to_owned(),
        address: Address::parse(Some(url)).unwrap(),
        credentials: app(),
        transport: transport::with_tls(tls, Duration::from_millis(1500)),
        clock: ground.clock.clone(),
    })
}

#[tokio::test]
async fn all_pages_come_over_tls_from_below_the_prefix() {
    let ground = Ground::new();
    for n in 0..250 {
        ground.repo.set_branch(&format!("b{n}"), &ground.head());
    }
    let (url, tls) = served(&ground).await;
    let client = client(&ground, &url, tls);
    assert_eq!(client.branches().await.unwrap().len(), 251);
    client.ensure_check_run(&check_run(&ground.head(), "w1-1")).await.unwrap();
    assert_eq!(ground.runs_made()["w1-1"], 1);
}

#[tokio::test]
async fn what_hangs_is_given_up_and_what_breaks_is_not_sent_again() {
    let ground = Ground::new();
    let (url, tls) = served(&ground).await;
    let client = client(&ground, &url, tls);
    client.repository().await.unwrap();
    for trouble in [Trouble::HangAfter, Trouble::LostReply] {
        ground.fake.order(Fault::on(&Method::POST, "/check-runs", trouble));
        let key = format!("{trouble:?}");
        let error = client.ensure_check_run(&check_run(&ground.head(), &key)).await.unwrap_err();
        assert!(matches!(error, Error::Unanswered { .. }), "{error}");
        client.ensure_check_run(&check_run(&ground.head(), &key)).await.unwrap();
        assert_eq!(ground.runs_made()[&key], 1);
    }
}

#[tokio::test]
async fn a_certificate_that_we_do_not_trust_gets_no_token() {
    let ground = Ground::new();
    let (url, _) = served(&ground).await;
    let (_, other) = served(&ground).await;
    let error = client(&ground, &url, other).branches().await.unwrap_err();
    assert!(matches!(error, Error::NotSent { .. }), "{error}");
    assert_eq!(ground.fake.requests(), 0);
}

#[tokio::test]
async fn somebody_at_a_shell_can_push_and_is_told_what_is_wrong() {
    let ground = Ground::new();
    let (url, tls) = served(&ground).await;
    let transport = transport::with_tls(tls, Duration::from_secs(10));
    let people = url.replace("/api/v3", "/people");
    let said = async |deed: &'static str| {
        let request = Request::post(people.as_str()).body(Bytes::from_static(deed.as_bytes())).unwrap();
        let answer = tower::ServiceExt::oneshot(transport.clone(), request).await.unwrap();
        (answer.status().as_u16(), String::from_utf8(answer.body().to_vec()).unwrap())
    };
    let push = r#"{"do": "push", "repository": "acme/infra", "branch": "main", "put": {"a/x.tf": "1"}}"#;
    let (status, body) = said(push).await;
    assert_eq!((status, body.contains(&ground.head())), (200, true));
    let (status, body) = said(r#"{"do": "push", "repository": "acme/other", "branch": "main"}"#).await;
    assert_eq!((status, body.contains("there is no repository acme/other")), (400, true));
}
