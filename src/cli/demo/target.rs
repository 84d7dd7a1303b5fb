//! The demo's target: an echo server in a process of its own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Connections at once; each has a thread. More wait in the backlog.
const CONNECTIONS_MAX: usize = 512;
const BUFFER_LEN: usize = 16 * 1024;

/// Serves until standard input ends, which it does when the demo goes, however it goes.
pub(in crate::cli) fn run() -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("target: {error}"))?;
    let addr = listener.local_addr().map_err(|error| format!("target: {error}"))?;
    eprintln!("level=info msg=\"listening\" what=target addr={addr}");
    thread::Builder::new()
        .name("accept".to_owned())
        .spawn(move || serve(&listener))
        .map_err(|error| format!("target: {error}"))?;
    // What is read does not matter, and an error is an end too.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    Ok(())
}

/// Echoes on every connection that comes.
pub(super) fn serve(listener: &TcpListener) {
    let places = Arc::new(());
    for stream in listener.incoming() {
        // The peer was gone before it was taken: the next one may not be.
        let Ok(stream) = stream else { continue };
        if Arc::strong_count(&places) > CONNECTIONS_MAX {
            continue;
        }
        let place = Arc::clone(&places);
        // Without a thread the connection is dropped, and the dialler sees it.
        let _ = thread::Builder::new().name("echo".to_owned()).spawn(move || {
            // An error is the peer's end, whatever its name.
            let _ = echo(stream);
            drop(place);
        });
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; BUFFER_LEN];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return stream.shutdown(Shutdown::Write);
        }
        stream.write_all(buffer.get(..length).unwrap_or_default())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_echoes_after_a_half_close_too() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || serve(&listener));
        let mut stream = TcpStream::connect(addr).unwrap();
        let sent: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == sent);
    }
}
