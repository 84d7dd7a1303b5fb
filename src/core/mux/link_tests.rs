//! Two links joined by bytes, under a virtual clock.

use super::*;
use crate::core::testing::{End, hello, key, start, welcome};
use crate::limits::{WINDOW_INITIAL, WINDOW_MAX};
use tautline_wire::DialCode;

const WINDOW: usize = WINDOW_INITIAL as usize;

struct Pair {
    now: Instant,
    server: End,
    agent: End,
    /// Bytes handed over at once.
    piece: usize,
}

impl Pair {
    fn new() -> Self {
        let now = start();
        let (server, agent) = (End::server(now), End::agent(now, "a"));
        let mut pair = Self { now, server, agent, piece: usize::MAX };
        pair.run();
        assert_eq!(pair.server.take_events(), [LinkEvent::Hello(hello("a"))]);
        assert!(!pair.server.link.is_open() && !pair.agent.link.is_open());
        pair.server.link.welcome(&hello("a"), welcome());
        pair.run();
        assert_eq!(pair.agent.take_events(), [LinkEvent::Welcome(welcome())]);
        assert!(pair.server.link.is_open() && pair.agent.link.is_open());
        pair
    }

    /// Carries bytes until both are silent.
    fn run(&mut self) {
        loop {
            let up = self.agent.send(self.now, 1 << 17);
            let down = self.server.send(self.now, 1 << 17);
            if up.is_empty() && down.is_empty() {
                return;
            }
            for piece in up.chunks(self.piece) {
                self.server.receive(self.now, piece).unwrap();
            }
            for piece in down.chunks(self.piece) {
                self.agent.receive(self.now, piece).unwrap();
            }
        }
    }

    fn dial(&mut self, id: u32) -> StreamKey {
        let time_left = Duration::from_secs(5);
        let Self { now, server, .. } = self;
        server.link.open(*now, &mut server.budget, id.into(), key(id), "host:1", time_left).unwrap()
    }

    /// An open stream, as each end names it. Its socket is `key(id)` at both.
    fn open(&mut self, id: u32) -> (StreamKey, StreamKey) {
        let there = self.dial(id);
        self.run();
        let events = self.agent.take_events();
        let [LinkEvent::DialRequested { stream: here, target, time_left }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((target.as_str(), *time_left), ("host:1", Duration::from_secs(5)));
        assert!(self.agent.link.dial_succeeded(*here, key(id)));
        self.run();
        assert_eq!(self.server.take_events(), [LinkEvent::Opened { owner: key(id), stream: there }]);
        (there, *here)
    }

    fn received(end: &End, id: u32) -> usize {
        end.sockets.received.get(&key(id)).map_or(0, Vec::len)
    }

    fn assert_empty(&self) {
        for end in [&self.server, &self.agent] {
            assert_eq!((end.link.streams(), end.budget.used()), (0, 0));
            assert!(!end.link.wants_transmit());
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn ended(id: u32, stream: StreamKey, end: StreamEnd) -> LinkEvent {
    LinkEvent::Ended { owner: key(id), stream, end }
}

fn control(frame: &Control) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_control(frame, &mut bytes);
    bytes
}

/// The frames of `bytes`, which are whole frames: control frames, and the length and FIN of DATA.
fn frames(bytes: &[u8]) -> (Vec<Control>, Vec<(u64, usize, bool)>) {
    let limits =
        Limits { data_len_max: DATA_LEN_MAX as u32, control_len_max: tautline_wire::CONTROL_LEN_MAX as u32 };
    let (mut decoder, mut rest) = (Decoder::new(limits), bytes);
    let (mut controls, mut data) = (Vec::new(), Vec::new());
    while let Some(item) = decoder.next(&mut rest).unwrap() {
        match item {
            Item::Control(frame) => controls.push(frame),
            Item::Data { stream, chunk, fin } => data.push((stream, chunk.len(), fin)),
        }
    }
    (controls, data)
}

#[test]
fn payload_arrives_once_and_in_order_in_any_split_of_the_bytes() {
    let (up, down) = (pattern(150_000), pattern(70_001));
    for piece in [1, 3, 17, 1000, 16_399, usize::MAX] {
        let mut pair = Pair::new();
        pair.piece = piece;
        let (there, here) = pair.open(1);
        pair.agent.write(here, key(1), &up, None);
        pair.server.write(there, key(1), &down, None);
        pair.run();
        assert!(pair.server.sockets.received[&key(1)] == up, "pieces of {piece}");
        assert!(pair.agent.sockets.received[&key(1)] == down, "pieces of {piece}");
        assert_eq!(pair.agent.link.stats().bytes_sent, up.len() as u64);
        assert_eq!(pair.agent.link.stats().bytes_received, down.len() as u64);
    }
}

#[test]
fn a_sink_that_takes_nothing_stops_the_sender_until_it_takes() {
    let mut pair = Pair::new();
    let (there, here) = pair.open(1);
    pair.agent.sockets.stuck.insert(key(1));
    pair.server.write(there, key(1), &pattern(3 * WINDOW), None);
    pair.run();
    assert_eq!(Pair::received(&pair.agent, 1), WINDOW);
    pair.agent.link.consumed(pair.now, here, WINDOW / 2);
    pair.run();
    assert_eq!(Pair::received(&pair.agent, 1), WINDOW, "half a window is not worth a frame");
    pair.agent.link.consumed(pair.now, here, 1);
    pair.run();
    assert_eq!(Pair::received(&pair.agent, 1), WINDOW + WINDOW / 2 + 1);
    pair.agent.sockets.stuck.clear();
    pair.agent.link.consumed(pair.now, here, WINDOW);
    pair.run();
    assert!(pair.agent.sockets.received[&key(1)] == pattern(3 * WINDOW));
}

#[test]
fn control_frames_pass_while_all_streams_are_blocked() {
    let mut pair = Pair::new();
    for id in 1..=3 {
        let (there, _) = pair.open(id);
        pair.agent.sockets.stuck.insert(key(id));
        pair.server.write(there, key(id), &pattern(2 * WINDOW), None);
    }
    pair.run();
    pair.open(4);
    pair.server.receive(pair.now, &control(&Control::Ping(77))).unwrap();
    assert_eq!(frames(&pair.server.send(pair.now, 1 << 17)), (vec![Control::Pong(77)], vec![]));
}

#[test]
fn greedy_streams_share_within_one_quantum_and_control_goes_first() {
    let mut pair = Pair::new();
    let streams = [1, 2].map(|id| pair.open(id).0);
    for (stream, id) in streams.into_iter().zip([1, 2]) {
        pair.server.write(stream, key(id), &pattern(2 * WINDOW), None);
    }
    pair.dial(3);
    let (controls, data) = frames(&pair.server.send(pair.now, 1 << 18));
    assert!(matches!(controls[..], [Control::DialReq(_)]));
    let mut sums = [0usize; 2];
    for (stream, len, _) in data {
        sums[stream as usize - 1] += len;
        assert!(sums[0].abs_diff(sums[1]) <= STREAM_QUANTUM as usize, "{sums:?}");
    }
    assert_eq!(sums, [WINDOW; 2]);
}

#[test]
fn fin_one_way_keeps_the_other_way_open_and_fin_both_ways_ends_without_close() {
    let mut pair = Pair::new();
    let (there, here) = pair.open(1);
    pair.server.write(there, key(1), b"question", Some(Pulled::Fin));
    pair.run();
    assert!(pair.agent.sockets.finished.contains(&key(1)));
    assert_eq!((pair.server.take_events(), pair.agent.take_events()), (vec![], vec![]));
    pair.agent.write(here, key(1), b"answer", Some(Pulled::Fin));
    let bytes = pair.agent.send(pair.now, 1 << 17);
    assert_eq!(frames(&bytes), (vec![], vec![(1, 6, false), (1, 0, true)]));
    pair.server.receive(pair.now, &bytes).unwrap();
    assert_eq!(pair.server.sockets.received[&key(1)], b"answer");
    let (first_here, first_there) =
        (StreamEnd::Finished { first: Origin::Here }, StreamEnd::Finished { first: Origin::There });
    assert_eq!(pair.server.take_events(), [ended(1, there, first_here)]);
    assert_eq!(pair.agent.take_events(), [ended(1, here, first_there)]);
    pair.assert_empty();
}

#[test]
fn close_arrives_after_all_data_that_was_sent_before_it() {
    let mut pair = Pair::new();
    let (there, here) = pair.open(1);
    pair.agent.write(here, key(1), &pattern(9000), None);
    let sent = pair.agent.send(pair.now, 1 << 17);
    pair.agent.close(here, CloseCode::Reset);
    pair.server.receive(pair.now, &sent).unwrap();
    pair.run();
    assert!(pair.server.sockets.received[&key(1)] == pattern(9000));
    assert_eq!(pair.server.take_events(), [ended(1, there, StreamEnd::ClosedThere(CloseCode::Reset))]);
    assert_eq!(pair.agent.take_events(), [], "close() makes no event");
    pair.assert_empty();

    let (there, here) = pair.open(2);
    pair.agent.write(here, key(2), b"last", Some(Pulled::Closed(CloseCode::Normal)));
    pair.run();
    assert_eq!(pair.server.sockets.received[&key(2)], b"last");
    assert_eq!(pair.server.take_events(), [ended(2, there, StreamEnd::ClosedThere(CloseCode::Normal))]);
    assert_eq!(pair.agent.take_events(), [ended(2, here, StreamEnd::ClosedHere(CloseCode::Normal))]);
    pair.assert_empty();
}

#[test]
fn a_cancel_that_crosses_its_answer_leaves_nothing() {
    for success in [true, false] {
        let mut pair = Pair::new();
        let there = pair.dial(1);
        pair.run();
        let (here, _) = pair.agent.dials().remove(0);
        pair.server.close(there, CloseCode::Cancelled);
        if success {
            assert!(pair.agent.link.dial_succeeded(here, key(1)));
        } else {
            let failure = DialFailure { code: DialCode::Refused, text: String::new() };
            pair.agent.link.dial_failed(here, &mut pair.agent.budget, failure);
        }
        pair.run();
        assert_eq!(pair.server.take_events(), []);
        let end = ended(1, here, StreamEnd::ClosedThere(CloseCode::Cancelled));
        assert_eq!(pair.agent.take_events(), if success { vec![end] } else { vec![] });
        assert_eq!(pair.server.link.stats().frames_ignored, 1);
        pair.assert_empty();
    }
}

#[test]
fn a_failed_dial_is_told_and_forgotten() {
    let mut pair = Pair::new();
    let there = pair.dial(1);
    pair.run();
    let (here, _) = pair.agent.dials().remove(0);
    let failure = DialFailure { code: DialCode::Refused, text: "no".to_owned() };
    pair.agent.link.dial_failed(here, &mut pair.agent.budget, failure.clone());
    pair.run();
    let failed = LinkEvent::DialFailed { owner: key(1), stream: there, failure };
    assert_eq!(pair.server.take_events(), [failed]);
    assert!(!pair.agent.link.dial_succeeded(here, key(1)), "it is gone");
    pair.assert_empty();
}

#[test]
fn frames_for_unknown_streams_are_ignored_and_counted() {
    let mut pair = Pair::new();
    let close = Close { stream: 9, code: CloseCode::Normal };
    let mut bytes = encode_data_header(9, 3, false).to_vec();
    bytes.extend(b"abc");
    for frame in [
        Control::Window(Window { stream: 9, credit: 1 }),
        Control::CloseReq(close),
        Control::DialCls(close),
        Control::DialRsp(DialRsp { stream: 9, result: Ok(()) }),
    ] {
        bytes.extend(control(&frame));
    }
    pair.server.receive(pair.now, &bytes).unwrap();
    assert_eq!(pair.server.link.stats().frames_ignored, 5);
    assert_eq!(pair.server.take_events(), []);
    pair.assert_empty();
}

#[test]
fn a_stream_that_breaks_its_credit_ends_alone() {
    let mut pair = Pair::new();
    let (too_much, _) = pair.open(1);
    let (overflow, _) = pair.open(2);
    let (after_fin, _) = pair.open(3);
    let (fine, _) = pair.open(4);
    for id in 1..=4 {
        pair.server.sockets.stuck.insert(key(id));
    }
    let mut bytes = Vec::new();
    for len in [DATA_LEN_MAX, WINDOW - DATA_LEN_MAX + 1] {
        bytes.extend(encode_data_header(1, len as u32, false));
        bytes.extend(pattern(len));
    }
    bytes.extend(control(&Control::Window(Window { stream: 2, credit: i32::MAX as u32 })));
    bytes.extend(encode_data_header(3, 0, true));
    bytes.extend(encode_data_header(3, 0, true));
    bytes.extend(encode_data_header(4, 1, false));
    bytes.push(b'x');
    pair.server.receive(pair.now, &bytes).unwrap();
    let end = StreamEnd::ClosedHere(CloseCode::Protocol);
    let expected = [(1, too_much), (2, overflow), (3, after_fin)].map(|(id, stream)| ended(id, stream, end));
    assert_eq!(pair.server.take_events(), expected);
    assert_eq!(pair.server.sockets.received[&key(4)], b"x");
    assert_eq!(pair.server.link.streams(), 1);
    let (controls, _) = frames(&pair.server.send(pair.now, 1 << 17));
    let close = |stream| Control::CloseReq(Close { stream, code: CloseCode::Protocol });
    assert_eq!(controls, [close(1), close(2), close(3)]);
    pair.server.close(fine, CloseCode::Normal);
    assert_eq!(pair.server.budget.used(), 0);
}

#[test]
fn a_peer_that_breaks_a_rule_of_the_link_is_an_error() {
    let dial = Control::DialReq(DialReq { stream: 1, time_left_ms: 1, target: "host:1".to_owned() });
    let answer = Control::DialRsp(DialRsp { stream: 1, result: Ok(()) });
    let rule = |result: Result<(), LinkError>| match result {
        Err(LinkError::PeerMisbehaved(rule)) => rule,
        other => panic!("{other:?}"),
    };
    let mut pair = Pair::new();
    let now = pair.now;
    assert_eq!(rule(pair.server.receive(now, &control(&dial))), "DIAL_REQ from an agent");
    assert_eq!(rule(pair.agent.receive(now, &control(&answer))), "DIAL_RSP from a server");
    pair.agent.receive(now, &control(&dial)).unwrap();
    assert_eq!(rule(pair.agent.receive(now, &control(&dial))), "DIAL_REQ for a stream that exists");
    pair.agent.link.abandon(&mut pair.agent.budget);
    assert_eq!(pair.agent.budget.used(), 0, "also after an error");

    let mut pair = Pair::new();
    pair.open(1);
    assert_eq!(rule(pair.server.receive(now, &control(&answer))), "a second DIAL_RSP");
    assert_eq!(rule(pair.agent.receive(now, &control(&Control::Welcome(welcome())))), "a second WELCOME");

    let mut agent = End::agent(now, "a");
    assert_eq!(rule(agent.receive(now, &control(&dial))), "the first frame is not WELCOME");
    let mut server = End::server(now);
    server.receive(now, &agent.send(now, 1 << 16)).unwrap();
    assert_eq!(rule(server.receive(now, &control(&Control::Drain))), "a frame before WELCOME");
    let mut server = End::server(now);
    assert!(matches!(server.receive(now, b"GET / HTTP/1.1\r\n"), Err(LinkError::Decode(_))));
}

/// Lets the server's end live alone. Says when it suspects and when it gives up.
fn alone(pair: &mut Pair, until: Instant) -> Vec<(Duration, Result<LinkEvent, LinkError>)> {
    let t = pair.now;
    let mut seen = Vec::new();
    while let Some((at, _)) = pair.server.link.poll_timeout().filter(|(at, _)| *at <= until) {
        pair.now = pair.now.max(at);
        let verdict = pair.server.link.handle_timeout(pair.now, &mut pair.server.budget);
        pair.server.send(pair.now, 1 << 16);
        seen.extend(pair.server.take_events().into_iter().map(|event| (pair.now - t, Ok(event))));
        if let Err(error) = verdict {
            seen.push((pair.now - t, Err(error)));
            break;
        }
    }
    pair.now = until.max(pair.now);
    seen
}

#[test]
fn silence_makes_suspect_after_three_seconds_and_ends_the_link_after_ten() {
    let mut pair = Pair::new();
    let until = pair.now + Duration::from_secs(60);
    let silence = Duration::from_secs(10);
    let expected = [
        (Duration::from_secs(3), Ok(LinkEvent::HealthChanged { false_after: None })),
        (silence, Err(LinkError::PeerSilent { silence })),
    ];
    assert_eq!(alone(&mut pair, until), expected);
}

#[test]
fn any_byte_heals() {
    let mut pair = Pair::new();
    let t = pair.now;
    alone(&mut pair, t + Duration::from_secs(5));
    assert!(matches!(pair.server.link.health(), Health::Suspect { .. }));
    let ping = control(&Control::Ping(1));
    pair.server.receive(pair.now, &ping[..1]).unwrap();
    let healed = LinkEvent::HealthChanged { false_after: Some(Duration::from_secs(2)) };
    assert_eq!(pair.server.take_events(), [healed]);
    assert_eq!(pair.server.link.health(), Health::Alive);
    assert!(alone(&mut pair, t + Duration::from_secs(7)).is_empty(), "silence counts from that byte on");
}

#[test]
fn half_closed_and_silent_for_an_hour_is_cut() {
    let mut pair = Pair::new();
    let (there, _) = pair.open(1);
    pair.open(2);
    pair.server.write(there, key(1), b"", Some(Pulled::Fin));
    pair.run();
    for minute in 0..=76 {
        let now = pair.now + Duration::from_secs(60 * minute);
        pair.server.receive(now, &control(&Control::Pong(0))).unwrap();
        pair.server.link.handle_timeout(now, &mut pair.server.budget).unwrap();
    }
    let cut = ended(1, there, StreamEnd::ClosedHere(CloseCode::TimedOut));
    assert_eq!(pair.server.take_events(), [cut], "and a stream that is open both ways stays");
}

/// Bytes of a client that left still reach a slow target; a target that takes nothing does not keep them for ever.
#[test]
fn bytes_of_a_socket_that_is_gone_wait_as_long_as_they_move() {
    let mut pair = Pair::new();
    let (there, here) = pair.open(1);
    pair.agent.sockets.stuck.insert(key(1));
    pair.server.write(there, key(1), &pattern(3 * WINDOW), None);
    pair.run();
    pair.server.link.source_gone(there, pair.now);
    pair.server.link.source_gone(there, pair.now + LINGER_TIMEOUT / 2);
    let sweep = |pair: &mut Pair| {
        pair.server.receive(pair.now, &control(&Control::Pong(0))).unwrap();
        pair.server.link.handle_timeout(pair.now, &mut pair.server.budget).unwrap();
        pair.server.take_events()
    };
    pair.now += LINGER_TIMEOUT - Duration::from_secs(1);
    pair.agent.link.consumed(pair.now, here, WINDOW);
    pair.run();
    assert_eq!(Pair::received(&pair.agent, 1), 2 * WINDOW);
    pair.now += LINGER_TIMEOUT - Duration::from_secs(1);
    assert_eq!(sweep(&mut pair), [], "some moved");
    pair.now += Duration::from_secs(1);
    assert_eq!(sweep(&mut pair), [ended(1, there, StreamEnd::ClosedHere(CloseCode::TimedOut))]);
    pair.run();
    assert_eq!(pair.agent.take_events(), [ended(1, here, StreamEnd::ClosedThere(CloseCode::TimedOut))]);
    pair.assert_empty();
}

#[test]
fn a_target_that_takes_a_byte_now_and_then_keeps_what_a_gone_socket_left() {
    let mut pair = Pair::new();
    let (there, here) = pair.open(1);
    pair.agent.sockets.stuck.insert(key(1));
    pair.server.write(there, key(1), &pattern(3 * WINDOW), None);
    pair.run();
    pair.server.link.source_gone(there, pair.now);
    for _ in 0..30 {
        pair.now += LINGER_TIMEOUT / 2;
        pair.agent.link.consumed(pair.now, here, 1);
        pair.run();
        pair.server.receive(pair.now, &control(&Control::Pong(0))).unwrap();
        pair.server.link.handle_timeout(pair.now, &mut pair.server.budget).unwrap();
        assert_eq!(pair.server.take_events(), []);
    }
    assert_eq!(Pair::received(&pair.agent, 1), WINDOW + 30);
}

#[test]
fn abandon_gives_all_owners_and_windows_back() {
    let mut pair = Pair::new();
    let (there, _) = pair.open(1);
    pair.server.write(there, key(1), &pattern(20 * WINDOW), None);
    pair.now += Duration::from_millis(1);
    pair.run();
    pair.dial(2);
    pair.run();
    assert!(pair.agent.budget.used() >= 2 * u64::from(WINDOW_INITIAL));
    assert!(pair.agent.budget.used() <= u64::from(WINDOW_MAX + WINDOW_INITIAL));
    let owners = |end: &mut End| -> Vec<Key> {
        end.link.abandon(&mut end.budget).into_iter().map(|(_, owner)| owner).collect()
    };
    assert_eq!(owners(&mut pair.server), [key(1), key(2)]);
    assert_eq!(owners(&mut pair.agent), [key(1), Key::default()], "nobody owns what is still dialled");
    assert_eq!((pair.server.budget.used(), pair.agent.budget.used()), (0, 0));
    assert_eq!((pair.server.link.streams(), pair.agent.link.streams()), (0, 0));
}

#[test]
fn a_peer_that_asks_but_does_not_read_is_cut() {
    let mut pair = Pair::new();
    let dial = |stream| DialReq { stream, time_left_ms: 1, target: "host:1".to_owned() };
    let mut last = Ok(());
    for stream in 1..10_000 {
        last = pair.agent.receive(pair.now, &control(&Control::DialReq(dial(stream))));
        let Some(&(key, _)) = pair.agent.dials().first() else { break };
        let failure = DialFailure { code: DialCode::Refused, text: "x".repeat(1000) };
        pair.agent.link.dial_failed(key, &mut pair.agent.budget, failure);
        if last.is_err() {
            break;
        }
    }
    assert_eq!(last, Err(LinkError::ControlBacklog));
}

/// A write that fails right behind a FIN: the end of the stream is an event that nobody fetched.
#[test]
fn abandon_also_gives_owners_whose_end_was_not_fetched() {
    let mut pair = Pair::new();
    let (there, here) = pair.open(1);
    pair.server.write(there, key(1), b"", Some(Pulled::Fin));
    pair.run();
    pair.agent.write(here, key(1), b"", Some(Pulled::Fin));
    let End { link, budget, sockets, .. } = &mut pair.agent;
    link.poll_transmit(pair.now, budget, sockets, &mut TransmitBuf::new(100));
    assert_eq!((link.streams(), link.abandon(budget), budget.used()), (0, vec![(here, key(1))], 0));
    assert_eq!(link.poll_event(), None);

    let there = pair.dial(2);
    let failure = DialFailure { code: DialCode::Refused, text: String::new() };
    let bytes = control(&Control::DialRsp(DialRsp { stream: 2, result: Err(failure) }));
    let End { link, budget, sockets, .. } = &mut pair.server;
    link.handle_bytes(pair.now, &bytes, budget, sockets).unwrap();
    assert!(link.abandon(budget).contains(&(there, key(2))));
    assert_eq!(budget.used(), 0);
}
