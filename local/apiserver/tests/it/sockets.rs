//! Does the server speak HTTP over sockets, plain and encrypted?

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Config};
use pawl_apiserver::serve;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::{TOKEN, guarded};

fn namespace(name: &str) -> Namespace {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
}

async fn works(scheme: &str, tls: Option<Arc<ServerConfig>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, guarded(), tls, async {
        stopped.await.ok();
    }));
    let mut config = Config::new(format!("{scheme}://{address}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.proxy_url = None;
    let stranger: Api<Namespace> = Api::all(Client::try_from(config.clone()).unwrap());
    let refused = stranger.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403), "a stranger may not look");
    config.auth_info.token = Some(TOKEN.to_owned().into());
    let api: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 4);
    let version = list.metadata.resource_version.unwrap();
    let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    api.create(&PostParams::default(), &namespace("made")).await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(5), events.try_next()).await.unwrap().unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(ns)) if ns.metadata.name.as_deref() == Some("made")));
    stop.send(()).unwrap();
    // An open watch must not keep the server from stopping.
    tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_client_over_plain_http_reads_writes_and_watches() {
    works("http", None).await;
}

#[tokio::test]
async fn a_client_over_tls_reads_writes_and_watches() {
    default_provider().install_default().ok();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    works("https", Some(Arc::new(config))).await;
}

#[tokio::test]
async fn nonsense_on_the_wire_does_not_disturb_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, guarded(), None, async {
        stopped.await.ok();
    }));
    for sent in
        [&b"\x16\x03\x01 this is TLS to a plain port"[..], b"GET / HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}
