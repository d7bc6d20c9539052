//! As whom requests are sent, and to whom they never are.

use std::sync::Arc;
use std::sync::Mutex;

use bytes::Bytes;
use http::header::{AUTHORIZATION, LINK};
use http::{Method, Request, Response};
use pawl_integrations::github::auth::{App, Secret};
use pawl_integrations::github::client::Parts;
use pawl_integrations::github::fake::{APP_ID, APP_KEY_PKCS8, Fault, Trouble};
use pawl_integrations::github::{Address, Client, Credentials, Endpoint, Error, Transport};
use pawl_integrations::transport::Broken;
use pawl_machines::failure::Category;

use crate::ground::{Ground, app, now};

#[test]
fn one_token_serves_until_shortly_before_it_ends() {
    let ground = Ground::new();
    let client = ground.client();
    for _ in 0..3 {
        now(client.branches()).unwrap();
    }
    assert_eq!(ground.tokens_minted(), 1);
    ground.clock.pass(54 * 60);
    now(client.branches()).unwrap();
    assert_eq!(ground.tokens_minted(), 1);
    ground.clock.pass(2 * 60);
    now(client.branches()).unwrap();
    assert_eq!(ground.tokens_minted(), 2, "five minutes before it ends, it is replaced");
}

#[tokio::test]
async fn all_who_need_a_token_at_once_wait_for_the_same() {
    let ground = Ground::new();
    // Everybody waits at the transport once, so that they are really there at the same time.
    let slow = {
        let inner = ground.transport.clone();
        Transport::new(tower::service_fn(move |request: Request<Bytes>| {
            let inner = inner.clone();
            async move {
                tokio::task::yield_now().await;
                tower::ServiceExt::oneshot(inner, request).await
            }
        }))
    };
    let client = ground.client_through(slow, app());
    let all = (0..10).map(|_| client.repository());
    for answer in futures::future::join_all(all).await {
        assert_eq!(answer.unwrap(), "acme/infra");
    }
    assert_eq!(ground.tokens_minted(), 1);
    assert_eq!(client.budget().of(Endpoint::Token).sent, 1);
}

#[test]
fn a_token_that_is_no_longer_taken_is_minted_anew_once() {
    let ground = Ground::new();
    let client = ground.client();
    now(client.branches()).unwrap();
    ground.fake.revoke_tokens();
    now(client.branches()).unwrap();
    assert_eq!(ground.tokens_minted(), 2);
    ground.fake.order(Fault::on(&Method::GET, "/branches", Trouble::Before(401)).times(10));
    let before = ground.fake.requests();
    let error = now(client.branches()).unwrap_err();
    assert!(matches!(error, Error::Refused { status: 401, .. }), "{error}");
    assert_eq!((error.category(), ground.fake.requests() - before), (Category::Transient, 3));
    ground.fake.clear_faults();
}

#[test]
fn a_write_that_a_stale_token_lost_is_carried_out_once() {
    let ground = Ground::new();
    let client = ground.client();
    now(client.branches()).unwrap();
    ground.fake.revoke_tokens();
    let run = crate::ground::check_run(&ground.head(), "w1-1");
    now(client.ensure_check_run(&run)).unwrap();
    assert_eq!(ground.runs_made()["w1-1"], 1);
}

#[test]
fn a_suspended_installation_and_a_wrong_key_say_so() {
    let ground = Ground::new();
    ground.fake.set_suspended(true);
    let error = now(ground.client().branches()).unwrap_err();
    assert!(error.to_string().contains("suspended") && error.attempt().contains("access_tokens"), "{error}");
    ground.fake.set_suspended(false);
    let uninstalled = Credentials::App(App::new(&APP_ID.to_string(), 71, APP_KEY_PKCS8).unwrap());
    let error = now(ground.client_as(uninstalled).branches()).unwrap_err();
    assert_eq!(error.category(), Category::MissingCredentials, "{error}: nothing is known of the branches");
    let stranger = Credentials::App(App::new("8", 70, APP_KEY_PKCS8).unwrap());
    let error = now(ground.client_as(stranger).branches()).unwrap_err();
    assert!(matches!(error, Error::Refused { status: 401, .. }), "{error}");
}

#[test]
fn a_token_of_a_user_needs_no_minting() {
    let ground = Ground::new();
    now(ground.token_client().branches()).unwrap();
    assert_eq!(ground.tokens_minted(), 0);
    let error = now(ground.client_as(Credentials::Token(Secret::new("hunter2"))).branches()).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("Bad credentials") && !shown.contains("hunter2"), "{shown}");
}

/// A GitHub whose second page is on another host.
fn elsewhere(link: &'static str) -> (Transport, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let transport = Transport::new(tower::service_fn(move |request: Request<Bytes>| {
        assert!(request.headers().contains_key(AUTHORIZATION));
        seen.lock().unwrap().push(request.uri().to_string());
        let mut answer = Response::new(Bytes::from_static(b"[]"));
        if !request.uri().to_string().contains("page=2") {
            answer.headers_mut().insert(LINK, link.parse().unwrap());
        }
        std::future::ready(Ok::<_, Broken>(answer))
    }));
    (transport, asked)
}

fn client_on(transport: Transport) -> Client {
    Client::new(Parts {
        owner: "acme".to_owned(),
        name: "infra".to_owned(),
        address: Address::parse(Some("https://ghe.example.com/api/v3")).unwrap(),
        credentials: Credentials::Token(Secret::new("hunter2")),
        transport,
        clock: Arc::new(pawl_engine::SystemClock),
    })
}

#[test]
fn a_page_on_another_host_is_refused_and_never_asked() {
    for link in [
        "<https://evil.example.com/api/v3/repositories/1/branches?page=2>; rel=\"next\"",
        "<https://ghe.example.com/elsewhere?page=2>; rel=\"next\"",
        "<http://ghe.example.com/api/v3/repositories/1/branches?page=2>; rel=\"next\"",
    ] {
        let (transport, asked) = elsewhere(link);
        let error = now(client_on(transport).branches()).unwrap_err();
        assert!(matches!(error, Error::ForeignLink { .. }), "{error}");
        assert_eq!(asked.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_page_on_an_enterprise_server_is_asked_there_as_us() {
    let next = "<https://ghe.example.com/api/v3/repositories/1/branches?per_page=100&page=2>; rel=\"next\", \
                <https://ghe.example.com/api/v3/x>; rel=\"last\"";
    let (transport, asked) = elsewhere(next);
    now(client_on(transport).branches()).unwrap();
    let asked = asked.lock().unwrap();
    assert_eq!(asked[1], "https://ghe.example.com/api/v3/repositories/1/branches?per_page=100&page=2");
}

#[test]
fn nothing_of_a_client_shows_its_credential() {
    let (transport, _) = elsewhere("<https://x>; rel=\"last\"");
    let client = client_on(transport);
    assert!(!format!("{client:?}").contains("hunter2"));
}
