//! How does the server listen on a socket?

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use super::Bounds;
use super::crowd::{Crowd, Seat};
use super::pace::{Overdue, Pace, PacedService};
use crate::Server;

/// A TLS handshake takes a few round trips.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that answers no HTTP/2 ping within this is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
/// What a connection may hold of one request's headers, and of what its client has not taken yet: a token and a few
/// headers are some 4 KiB, and more than 200 KiB at once makes sending no faster.
const MAX_BUFFER_BYTES: usize = 256 << 10;
/// Requests at once on one HTTP/2 connection: every watch of a client that may have 512 of them, on two connections.
const MAX_STREAMS: u32 = 256;
/// A refused accept (out of files) is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often somebody is asked to make room for a connection that waits.
const ROOM_LOOK: Duration = Duration::from_millis(200);
/// How long one that was asked to leave may take for a request that was just on its way.
const GOODBYE: Duration = Duration::from_millis(100);
/// How long open requests may take to end once the server is told to stop; watches never end by themselves.
const DRAIN: Duration = Duration::from_secs(2);

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener is no use.
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

/// Serves HTTP/1 and HTTP/2, over TLS if told how, until `shutdown` is ready; then lets requests under way
/// end. Everybody is asked who they are: see [`Server::with_access`].
pub async fn serve(
    listener: TcpListener,
    server: Server,
    tls: Option<Arc<ServerConfig>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    serve_within(Bounds::default(), listener, server, tls, shutdown).await
}

/// The same with other limits on each client.
pub async fn serve_within(
    bounds: Bounds,
    listener: TcpListener,
    server: Server,
    tls: Option<Arc<ServerConfig>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    listener.local_addr()?;
    let tls = tls.map(|config| TlsAcceptor::from(with_protocols(config)));
    let room = Arc::new(Semaphore::new(bounds.connections));
    let crowd = Crowd::default();
    let (stop, stopped) = watch::channel(());
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let (stream, place) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &room, &crowd) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let service = server.guarded_service().within(bounds);
        let pace = Pace::new();
        let seat = crowd.enter(pace.clone());
        let service = PacedService { service, pace };
        let (tls, stopped) = (tls.clone(), stopped.clone());
        tokio::spawn(async move {
            match tls {
                None => converse(stream, service, bounds, &seat, stopped).await,
                Some(tls) => {
                    if let Some(stream) = shake_hands(&tls, stream, &seat).await {
                        converse(stream, service, bounds, &seat, stopped).await;
                    }
                }
            }
            drop((seat, place));
        });
    }
    drop((listener, stopped));
    // Every connection holds a receiver until it has ended, at the latest after DRAIN.
    stop.send_replace(());
    stop.closed().await;
    Ok(())
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    crowd: &Crowd,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let (stream, _) = listener.accept().await?;
    // Small answers must not wait for more to send.
    stream.set_nodelay(true)?;
    Ok((stream, place(room, crowd).await?))
}

/// A place, at the cost of whoever needs theirs least. Where everybody is busy, one who was may be idle soon.
async fn place(room: &Arc<Semaphore>, crowd: &Crowd) -> io::Result<OwnedSemaphorePermit> {
    loop {
        if let Ok(place) = room.clone().try_acquire_owned() {
            return Ok(place);
        }
        crowd.make_room();
        let freed = tokio::time::timeout(ROOM_LOOK, room.clone().acquire_owned()).await;
        if let Ok(place) = freed {
            return place.map_err(io::Error::other);
        }
    }
}

async fn shake_hands(tls: &TlsAcceptor, stream: TcpStream, seat: &Seat) -> Option<TlsStream<TcpStream>> {
    tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => match shaken {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        },
        () = seat.asked_to_leave() => tracing::debug!("a TLS handshake had to make room for others"),
    }
    None
}

/// Requests and answers on one connection until it ends, its client does not keep up, or the server stops.
async fn converse<S>(
    stream: S,
    service: PacedService,
    bounds: Bounds,
    seat: &Seat,
    mut stopped: watch::Receiver<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(MAX_BUFFER_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(Some(PING_EVERY)).max_concurrent_streams(MAX_STREAMS);
    let pace = service.pace.clone();
    let service = TowerToHyperService::new(service);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        overdue = pace.overdue(bounds.head, bounds.stall) => match overdue {
            // What it was sent last may still be on its way.
            Overdue::Idle => {
                connection.as_mut().graceful_shutdown();
                tokio::time::timeout(DRAIN, connection).await.unwrap_or(Ok(()))
            }
            Overdue::Stalled => {
                tracing::debug!(after = ?bounds.stall, "a client took nothing of its answer and was cut off");
                return;
            }
        },
        () = seat.asked_to_leave() => {
            tracing::debug!("an idle connection had to make room for others");
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(GOODBYE, connection).await.unwrap_or(Ok(()))
        }
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(DRAIN, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended badly");
    }
}

/// Offers HTTP/2 and HTTP/1.1, unless the configuration offers something already.
fn with_protocols(config: Arc<ServerConfig>) -> Arc<ServerConfig> {
    if !config.alpn_protocols.is_empty() {
        return config;
    }
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}
