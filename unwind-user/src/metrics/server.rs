//! Serves `/metrics` over HTTP/1.1 on the session's own event loop.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// Somebody asks for the metrics; the session answers with their text.
pub type Asked = oneshot::Sender<Vec<u8>>;

/// Time for a request to arrive; then the connection is closed, for those that wait.
const SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Connections served at once; more wait.
const CONNECTIONS_MAX: usize = 64;

/// Listens at `addr` and passes each question on. Ends with the runtime.
///
/// # Errors
/// When the address cannot be listened at.
pub async fn serve(addr: SocketAddr) -> std::io::Result<(SocketAddr, mpsc::Receiver<Asked>)> {
    let listener = TcpListener::bind(addr).await?;
    let bound = listener.local_addr()?;
    let (ask, asked) = mpsc::channel(CONNECTIONS_MAX);
    tokio::spawn(accept(listener, ask));
    Ok((bound, asked))
}

async fn accept(listener: TcpListener, ask: mpsc::Sender<Asked>) {
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Such as no descriptor left: try again when a connection may have ended.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let ask = ask.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, ask.clone()));
            let mut builder = http1::Builder::new();
            // A client that sends nothing must not hold its place for ever.
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(SILENCE_MAX);
            let served = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "metrics connection");
            }
            drop(place);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    ask: mpsc::Sender<Asked>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return Ok(plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n"));
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "GET only\n"));
    }
    let (reply, text) = oneshot::channel();
    if ask.send(reply).await.is_err() {
        return Ok(plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the session is ending\n",
        ));
    }
    let Ok(text) = text.await else {
        return Ok(plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the session is ending\n",
        ));
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
