//! How is PostgreSQL reached? By a URL as libpq reads it, over rustls where TLS is asked for or offered.
//!
//! Where there is TLS, the server's certificate and name are checked, whatever `sslmode` says: against the system's
//! roots, or against `sslrootcert` where the URL names a file. `sslmode` says whether a connection without TLS will do
//! (`disable`, `prefer`) or not (`require`, `verify-ca`, `verify-full`).

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;

use crate::error::Error;

/// Makes TLS sessions for tokio-postgres.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// What a URL asks for.
pub(crate) fn settings(url: &str) -> Result<(Config, Tls), Error> {
    let wrong = |problem: String| Error::Address { place: without_secrets(url), problem };
    let (plain, root) = take_root_certificate(url);
    let plain = plain
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
        wrong(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
    })?;
    config.application_name("pawl");
    if config.get_hosts().is_empty() {
        return Err(wrong("it names no host".to_owned()));
    }
    if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        config.ssl_mode(SslMode::Disable);
    }
    let roots = if config.get_ssl_mode() == SslMode::Disable {
        RootCertStore::empty()
    } else {
        trusted(root.as_deref()).map_err(wrong)?
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((config, Tls(TlsConnector::from(Arc::new(client)))))
}

/// The URL as it may be shown.
pub(crate) fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split('?').next().unwrap_or_default();
    format!("{scheme}://{rest}")
}

/// `sslrootcert` is libpq's, and not known to the client.
fn take_root_certificate(url: &str) -> (String, Option<String>) {
    let Some((address, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut root = None;
    let others = query.split('&').filter(|option| match option.strip_prefix("sslrootcert=") {
        Some(file) => {
            root = Some(file.replace("%2F", "/").replace("%2f", "/"));
            false
        }
        None => true,
    });
    let others = others.collect::<Vec<_>>().join("&");
    (if others.is_empty() { address.to_owned() } else { format!("{address}?{others}") }, root)
}

fn trusted(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let read = read.map_err(|error| format!("sslrootcert={file} cannot be read: {error}"))?;
            for certificate in read {
                roots.add(certificate).map_err(|error| format!("sslrootcert={file}: {error}"))?;
            }
        }
        // A machine without any may still reach a database without TLS.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Secured<S>;
    type TlsConnect = Connect;
    type Error = Infallible;

    /// Asked for every host, also for a socket in the file system, which has no name and never gets to `connect`.
    fn make_tls_connect(&mut self, host: &str) -> Result<Connect, Infallible> {
        Ok(Connect { connector: self.0.clone(), host: host.to_owned() })
    }
}

/// One session to be made.
pub(crate) struct Connect {
    connector: TlsConnector,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> TlsConnect<S> for Connect {
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Secured<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        async move {
            let Self { connector, host } = self;
            let name = ServerName::try_from(host)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            Ok(Secured(connector.connect(name, stream).await?))
        }
        .boxed()
    }
}

/// One session.
pub(crate) struct Secured<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_never_shown_with_its_password() {
        let url =
            "postgres://pawl:entirely@made-up@db.example:5432/audit?sslmode=require&password=also-made-up";
        assert_eq!(without_secrets(url), "postgres://db.example:5432/audit");
        let error = settings("postgres://u:made-up@db:port/x").unwrap_err().to_string();
        assert!(error.contains("postgres://db:port/x") && !error.contains("made-up"), "{error}");
    }

    #[test]
    fn libpq_s_ways_to_ask_for_a_checked_certificate_are_known() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let (config, _) = settings(&format!("postgres://u@db/x?sslmode={mode}")).unwrap();
            assert_eq!(config.get_ssl_mode(), SslMode::Require, "{mode}");
        }
        let error = settings("postgres://u@db/x?sslrootcert=%2Fnot%2Fthere&sslmode=verify-full").unwrap_err();
        assert!(error.to_string().contains("/not/there"), "{error}");
        assert_eq!(settings("postgres:///x?host=/tmp/here").unwrap().0.get_ssl_mode(), SslMode::Disable);
    }
}
