//! How does the server listen on a socket?

use std::future::Future;
use std::io;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::Server;

/// A client that takes longer to send its headers is not a client.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A refused accept (out of files) is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long open requests may take to end once the server is told to stop; watches never end by themselves.
const DRAIN: Duration = Duration::from_secs(2);

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener is no use.
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

/// Serves HTTP/1 and HTTP/2 until `shutdown` is ready, then lets requests under way end.
pub async fn serve(
    listener: TcpListener,
    server: Server,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    listener.local_addr()?;
    let (stop, stopped) = tokio::sync::watch::channel(());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Small answers must not wait for more to send.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let service = TowerToHyperService::new(server.service());
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let mut stopped = stopped.clone();
        tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::time::timeout(DRAIN, connection).await.unwrap_or(Ok(()))
                }
            };
            if let Err(error) = ended {
                tracing::debug!(error, "a connection ended badly");
            }
        });
    }
    drop((listener, stopped));
    // Every connection holds a receiver until it has ended, at the latest after DRAIN.
    stop.send_replace(());
    stop.closed().await;
    Ok(())
}
