//! One page over HTTP, for one reader at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pm_cli::Failure;

/// A reader who is slower is left.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request that are looked at.
const REQUEST_BYTES_MAX: usize = 4096;

/// Serves the page from a thread, until the process ends. The answer is the address.
pub(super) fn start(address: SocketAddr, page: Arc<Mutex<String>>) -> Result<SocketAddr, Failure> {
    if !address.ip().is_loopback() {
        let cause = format!("--listen {address}: commands of all users would be told to the net");
        return Err(Failure::new(
            cause,
            "take 127.0.0.1 or [::1], and a proxy that asks who it is",
        ));
    }
    let failed = |error: io::Error| {
        Failure::new(
            format!("--listen {address}: {error}"),
            "take a port that is free",
        )
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    std::thread::spawn(move || {
        for reader in listener.incoming().flatten() {
            // A reader that goes away has no answer to get.
            let _ = answer(reader, &page);
        }
    });
    Ok(at)
}

fn answer(mut reader: TcpStream, page: &Mutex<String>) -> io::Result<()> {
    reader.set_read_timeout(Some(PATIENCE))?;
    reader.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0; 512];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let got = reader.read(&mut part)?;
        request.extend(&part[..got]);
        if got == 0 || request.len() > REQUEST_BYTES_MAX {
            break;
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        let page = page.lock().unwrap_or_else(PoisonError::into_inner);
        ("200 OK", page.clone())
    } else if request.starts_with(b"GET ") {
        ("404 Not Found", "take /metrics\n".to_owned())
    } else {
        ("405 Method Not Allowed", "take GET /metrics\n".to_owned())
    };
    write!(
        reader,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
