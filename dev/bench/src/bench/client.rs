//! How does a request reach the server at the least cost to the machine both share?
//!
//! HTTP/1.1 over connections that stay open, one request at a time on each. No client library in between:
//! what it spends on retries, layers and typed objects would be measured as the server's.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Names the bench in the server's logs and as the manager of what it writes.
const AGENT: &str = "pawl-bench/1";
/// How much of a refusal is shown: a Status fits, a page of HTML does not.
const SHOWN_BYTES: usize = 400;

/// Whom to believe to be the server.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// Whoever has a certificate of this authority.
    Authority(std::path::PathBuf),
    /// Anybody.
    Anybody,
    /// Nobody: fine for `http`, refused for `https`.
    Nobody,
}

/// A server to connect to.
#[derive(Clone)]
pub(super) struct Target {
    address: String,
    host: HeaderValue,
    token: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    token: HeaderValue,
}

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    /// The content type, empty without a body.
    pub(super) media: &'static str,
    pub(super) body: Bytes,
}

impl Ask {
    pub(super) fn get(path: impl Into<String>) -> Ask {
        Ask { method: Method::GET, path: path.into(), media: "", body: Bytes::new() }
    }

    pub(super) fn delete(path: impl Into<String>) -> Ask {
        Ask { method: Method::DELETE, ..Ask::get(path) }
    }

    pub(super) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Ask {
        Ask { method: Method::POST, path: path.into(), media: "application/json", body: body.into() }
    }

    pub(super) fn patch(path: impl Into<String>, media: &'static str, body: impl Into<Bytes>) -> Ask {
        Ask { method: Method::PATCH, path: path.into(), media, body: body.into() }
    }
}

impl Target {
    /// Reads a server's URL.
    pub(super) fn new(server: &str, token: &str, trust: &Trust) -> anyhow::Result<Target> {
        let uri: Uri = server.parse().with_context(|| format!("--server {server:?} is not a URL"))?;
        let host = uri.host().with_context(|| format!("--server {server:?} names no host"))?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => bail!("--server {server:?} must begin with https:// or http://"),
        };
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let address = format!("{host}:{port}");
        let tls = if secure {
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
                .with_context(|| format!("--server {server:?}: {host} can be on no certificate"))?;
            Some((TlsConnector::from(Arc::new(tls(trust)?)), name))
        } else {
            None
        };
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}"))
            .context("--token has characters that no header may have")?;
        bearer.set_sensitive(true);
        Ok(Target { host: HeaderValue::from_str(&address)?, address, token: bearer, tls })
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let failed = || format!("connect to {}", self.address);
        let stream = TcpStream::connect(&self.address).await.with_context(failed)?;
        stream.set_nodelay(true)?;
        let sender = match &self.tls {
            None => speak(stream).await,
            Some((tls, name)) => speak(tls.connect(name.clone(), stream).await.with_context(failed)?).await,
        };
        let sender = sender.with_context(failed)?;
        Ok(Connection { sender, host: self.host.clone(), token: self.token.clone() })
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    /// Sends a request and takes the whole answer, which must be a good one.
    pub(super) async fn send(&mut self, ask: Ask) -> anyhow::Result<Bytes> {
        let what = (ask.method.clone(), ask.path.clone());
        let (status, body) = self.try_send(ask).await?;
        if !status.is_success() {
            let shown = body.get(..body.len().min(SHOWN_BYTES)).unwrap_or_default();
            bail!("{} {} was answered {status}: {}", what.0, what.1, String::from_utf8_lossy(shown));
        }
        Ok(body)
    }

    /// Sends a request and takes the whole answer, whatever it is.
    pub(super) async fn try_send(&mut self, ask: Ask) -> anyhow::Result<(http::StatusCode, Bytes)> {
        let answer = self.begin(ask).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await.context("read an answer")?;
        Ok((status, body.to_bytes()))
    }

    /// Sends a request; the answer's body is yet to come.
    pub(super) async fn begin(&mut self, ask: Ask) -> anyhow::Result<Response<Incoming>> {
        let Ask { method, path, media, body } = ask;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.host.clone())
            .header(AUTHORIZATION, self.token.clone())
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        if !media.is_empty() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        let request = request.body(Full::new(body)).context("make a request")?;
        self.sender.ready().await.context("the server closed the connection")?;
        self.sender.send_request(request).await.context("send a request")
    }
}

async fn speak<S>(stream: S) -> anyhow::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the sender; what goes wrong before is seen by the request under way.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn tls(trust: &Trust) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let mut config = match trust {
        Trust::Nobody => bail!("an https server needs --ca FILE (its authority) or --insecure"),
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
            .with_no_client_auth(),
        Trust::Authority(path) => {
            let mut roots = RootCertStore::empty();
            let failed = || format!("--ca {}: cannot be read", path.display());
            for certificate in CertificateDer::pem_file_iter(path).with_context(failed)? {
                roots.add(certificate.with_context(failed)?).with_context(failed)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Takes any certificate, as `--insecure` asks. Signatures are still checked: TLS does not work without.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_be_reached_safely_is_refused_with_what_to_do() {
        let refused = |server: &str, token: &str| {
            let made = Target::new(server, token, &Trust::Nobody);
            format!("{:#}", made.unwrap_err())
        };
        assert!(refused("https://127.0.0.1:6443", "t").contains("--insecure"));
        assert!(refused("127.0.0.1:6443", "t").contains("https://"));
        assert!(refused("ftp://127.0.0.1", "t").contains("https://"));
        assert!(refused("http://h", "line\nfeed").contains("--token"));
    }

    #[test]
    fn a_token_is_not_shown_in_debug_output() {
        let target = Target::new("http://127.0.0.1:1", "not-a-real-token", &Trust::Nobody).unwrap();
        assert!(!format!("{target:?}").contains("not-a-real-token"));
    }
}
