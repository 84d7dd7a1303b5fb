//! How connections end, on Unix sockets and TCP apart: the table of what a program may see.

use std::io::ErrorKind;

use tautline::net::sys::Sys;

use super::pair::{Pair, outcome};

const BLOCKED: Result<usize, ErrorKind> = Err(ErrorKind::WouldBlock);
const RESET: Result<usize, ErrorKind> = Err(ErrorKind::ConnectionReset);
const PIPE: Result<usize, ErrorKind> = Err(ErrorKind::BrokenPipe);

fn both() -> [Pair; 2] {
    [Pair::tcp(), Pair::unix()]
}

#[test]
fn bytes_arrive_and_raise_an_edge() {
    for mut pair in both() {
        assert_eq!(pair.client.write(1000).unwrap(), 1000);
        assert!(pair.client.sys.unsent(pair.client.sock).unwrap() >= 1000);
        pair.pass();
        assert!(pair.server.events().readable);
        assert_eq!(pair.server.read().unwrap(), 1000);
        assert_eq!(outcome(pair.server.read()), BLOCKED);
        pair.pass();
        assert_eq!(pair.client.sys.unsent(pair.client.sock).unwrap(), 0);
    }
}

#[test]
fn shutdown_ends_one_direction_only() {
    for mut pair in both() {
        pair.client.write(10).unwrap();
        pair.client.sys.shutdown_write(pair.client.sock).unwrap();
        assert_eq!(outcome(pair.client.write(1)), PIPE);
        pair.pass();
        let events = pair.server.events();
        assert!(events.read_closed && !events.hup);
        assert_eq!((pair.server.read().unwrap(), pair.server.read().unwrap()), (10, 0));

        assert_eq!(pair.server.write(20).unwrap(), 20);
        pair.pass();
        assert_eq!(pair.client.read().unwrap(), 20);
        assert_eq!(outcome(pair.client.read()), BLOCKED);
        pair.client.events();
        pair.server.sys.shutdown_write(pair.server.sock).unwrap();
        pair.pass();
        assert!(pair.client.events().hup, "both directions are shut");
        assert_eq!(pair.client.read().unwrap(), 0);
    }
}

#[test]
fn a_close_on_tcp_looks_like_a_shutdown_until_somebody_writes() {
    let mut pair = Pair::tcp();
    pair.client.write(10).unwrap();
    pair.client.sys.close(pair.client.sock);
    pair.pass();
    let events = pair.server.events();
    assert!(events.readable && events.read_closed && !events.hup);
    assert_eq!((pair.server.read().unwrap(), pair.server.read().unwrap()), (10, 0));
    assert_eq!(pair.server.write(1).unwrap(), 1, "the kernel does not know yet");
    pair.pass();
    assert!(pair.server.events().hup);
    assert_eq!(outcome(pair.server.write(1)), PIPE, "a reset after a FIN");
    assert_eq!(pair.server.read().unwrap(), 0);
    let shutdown = pair.server.sys.shutdown_write(pair.server.sock);
    assert_eq!(shutdown.unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn a_close_on_a_unix_socket_takes_both_directions() {
    let mut pair = Pair::unix();
    pair.client.write(10).unwrap();
    pair.client.sys.close(pair.client.sock);
    let events = pair.server.events();
    assert!(events.hup && events.read_closed);
    assert_eq!(outcome(pair.server.write(1)), PIPE);
    assert_eq!((pair.server.read().unwrap(), pair.server.read().unwrap()), (10, 0));
}

#[test]
fn a_close_with_unread_bytes_is_a_reset() {
    for mut pair in both() {
        pair.server.write(5).unwrap();
        pair.client.write(10).unwrap();
        pair.pass();
        pair.client.sys.close(pair.client.sock);
        pair.pass();
        let events = pair.server.events();
        assert!(events.hup && events.error);
        assert_eq!(pair.server.read().unwrap(), 10, "what came before is still there");
        assert_eq!(outcome(pair.server.read()), RESET);
        assert_eq!(pair.server.read().unwrap(), 0);
        assert_eq!(outcome(pair.server.write(1)), PIPE);
    }
}

#[test]
fn an_abort_is_a_reset_on_tcp_and_a_close_on_a_unix_socket() {
    for (mut pair, first) in both().into_iter().zip([RESET, PIPE]) {
        pair.client.sys.abort(pair.client.sock);
        pair.pass();
        assert!(pair.server.events().hup);
        assert_eq!(outcome(pair.server.write(1)), first);
        assert_eq!(outcome(pair.server.write(1)), PIPE);
        assert_eq!(pair.server.read().unwrap(), 0);
    }
}

#[test]
fn a_reset_is_reported_once_and_whoever_writes_first_hides_it_from_reads() {
    let mut pair = Pair::tcp();
    pair.client.write(10).unwrap();
    pair.pass();
    pair.client.sys.abort(pair.client.sock);
    pair.pass();
    assert_eq!(outcome(pair.server.write(1)), RESET);
    assert_eq!((pair.server.read().unwrap(), pair.server.read().unwrap()), (10, 0), "as if it were whole");
}

#[test]
fn bytes_sent_to_a_closed_socket_reset_what_it_still_had_to_send() {
    let mut pair = Pair::tcp();
    // The server reads nothing, so the client's kernel keeps what does not fit.
    while pair.client.write(100_000).is_ok() {
        pair.pass();
    }
    pair.client.sys.close(pair.client.sock);
    pair.server.write(1).unwrap();
    pair.pass();
    assert!(pair.server.events().hup);
    let mut received = 0;
    let end = loop {
        match outcome(pair.server.read()) {
            Ok(len) if len > 0 => received += len,
            end => break end,
        }
    };
    assert_eq!(end, RESET);
    assert_eq!(received, 64 * 1024, "the tail is lost");
}

#[test]
fn a_full_buffer_blocks_and_room_raises_an_edge() {
    for mut pair in both() {
        while pair.client.write(100_000).is_ok() {
            pair.pass();
        }
        pair.client.events();
        pair.pass();
        assert!(!pair.client.events().writable);
        while pair.server.read().is_ok() {
            pair.pass();
        }
        assert!(pair.client.events().writable);
        assert!(pair.client.write(1).is_ok());
    }
}

#[test]
fn the_last_byte_taken_from_a_unix_socket_raises_a_writable_edge() {
    let mut pair = Pair::unix();
    pair.client.write(10).unwrap();
    assert!(!pair.client.events().writable);
    assert!(pair.client.sys.unsent(pair.client.sock).unwrap() > 0);
    pair.server.read().unwrap();
    assert!(pair.client.events().writable);
    assert_eq!(pair.client.sys.unsent(pair.client.sock).unwrap(), 0);
}

#[test]
fn without_wouldblock_no_second_edge_is_certain() {
    for mut pair in both() {
        pair.client.write(10).unwrap();
        pair.pass();
        assert!(pair.server.events().readable);
        pair.client.write(10).unwrap();
        pair.client.sys.shutdown_write(pair.client.sock).unwrap();
        pair.pass();
        assert!(!pair.server.events().readable, "neither for new bytes nor for the FIN");
        assert_eq!((pair.server.read().unwrap(), pair.server.read().unwrap()), (20, 0));
    }
}

#[test]
fn a_listener_that_closes_refuses_who_waits() {
    for mut pair in both() {
        let unix = pair.client.sys.tcp_info(pair.client.sock).is_err();
        let waiting = if unix {
            pair.client.sys.connect_unix("/run/s".as_ref()).unwrap()
        } else {
            pair.client.sys.connect(super::pair::address(super::pair::SERVER_IP, 80)).unwrap()
        };
        pair.pass();
        pair.server.sys.close(pair.listener);
        pair.pass();
        let read = pair.client.sys.read(waiting, &mut [0]);
        assert_eq!(outcome(read), RESET);
    }
}
