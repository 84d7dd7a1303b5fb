//! Golden vectors in both directions: the files of `wire/vectors` and what they mean.
#![expect(clippy::panic, reason = "helpers of tests say which file it was")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::{Event, GREETING, OPEN, WIDE, run, split};
use tautline_wire::{
    CREDIT_MAX, Close, CloseCode, Control, DecodeError, Decoder, DialCode, DialFailure, DialReq, DialRsp,
    FieldFault, FrameType, GoAway, GoAwayCode, Hello, MAGIC, Welcome, Window, encode_control,
    encode_data_header,
};

/// The bytes of a vector: hex digits, `#` begins a comment.
fn vector(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name).with_extension("hex");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let hex = text.lines().flat_map(|line| line.split('#').next()).flat_map(str::split_whitespace);
    hex.map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|_| panic!("{name}: {byte}"))).collect()
}

/// Frames that this crate sends byte for byte like this.
fn exact() -> Vec<(&'static str, Event)> {
    let close = |stream, code| Close { stream, code };
    let data = |bytes: &[u8], fin| Event::Data { stream: 7, bytes: bytes.to_vec(), fin };
    let refused = DialFailure { code: DialCode::Refused, text: "connection refused".into() };
    let dial = DialReq { stream: 7, time_left_ms: 8000, target: "[2001:db8::1]:10250".into() };
    let bye = GoAway { code: GoAwayCode::Version, text: "this server speaks 2-3".into() };
    let mut all = vec![
        ("data", data(b"hello", false)),
        ("data_fin", data(b"bye", true)),
        ("data_fin_empty", data(b"", true)),
    ];
    let controls = [
        ("dial_req", Control::DialReq(dial)),
        ("dial_rsp_connected", Control::DialRsp(DialRsp { stream: 7, result: Ok(()) })),
        ("dial_rsp_failed", Control::DialRsp(DialRsp { stream: 7, result: Err(refused) })),
        ("close_req_normal", Control::CloseReq(close(0x0102_0304_0506_0708, CloseCode::Normal))),
        ("close_rsp_reset", Control::CloseRsp(close(7, CloseCode::Reset))),
        ("dial_cls", Control::DialCls(close(9, CloseCode::Cancelled))),
        ("drain", Control::Drain),
        ("hello", Control::Hello(Hello { token: Some("secret".into()), ..greeting() })),
        ("hello_no_token", Control::Hello(bare_hello())),
        ("welcome", Control::Welcome(welcome())),
        ("ping", Control::Ping(0x1122_3344_5566_7788)),
        ("pong", Control::Pong(0x1122_3344_5566_7788)),
        ("window", Control::Window(Window { stream: 7, credit: 32_768 })),
        ("goaway", Control::GoAway(bye)),
    ];
    all.extend(controls.map(|(name, control)| (name, Event::Control(control))));
    all
}

fn greeting() -> Hello {
    Hello {
        version_min: 1,
        version_max: 3,
        features: 0x8000_0000_0000_0005,
        agent_id: "node-ä".into(),
        identifiers: "host=node-a&ipv4=192.0.2.7".into(),
        token: None,
        ping_interval_ms: 2000,
        window: 65_536,
        data_len_max: 65_520,
    }
}

fn bare_hello() -> Hello {
    Hello { version_min: 1, version_max: 1, agent_id: "a".into(), data_len_max: 1, ..Hello::default() }
}

fn welcome() -> Welcome {
    let server_id = "server-1".into();
    Welcome { version: 1, features: 5, server_id, server_count: 3, window: 65_536, data_len_max: 65_520 }
}

/// Bytes that are understood although this crate never sends them.
fn accepted() -> Vec<(&'static str, Vec<Control>)> {
    let unknown = DialFailure { code: DialCode::Other, text: String::new() };
    let future = Hello {
        version_min: 2,
        version_max: 9,
        agent_id: "b".into(),
        window: 1,
        data_len_max: 16_384,
        ..Hello::default()
    };
    let short = Welcome {
        version: 1,
        server_id: "s".into(),
        server_count: 1,
        window: CREDIT_MAX,
        data_len_max: u32::MAX,
        ..Welcome::default()
    };
    vec![
        ("accept_reserved_bits", vec![Control::Ping(1)]),
        (
            "accept_unknown_codes",
            vec![
                Control::DialRsp(DialRsp { stream: 7, result: Err(unknown) }),
                Control::CloseReq(Close { stream: 7, code: CloseCode::Other }),
                Control::GoAway(GoAway { code: GoAwayCode::Other, text: String::new() }),
            ],
        ),
        ("accept_unknown_types", vec![Control::Ping(2)]),
        ("accept_data_empty", vec![Control::Ping(3)]),
        ("accept_hello_from_the_future", vec![Control::Hello(future)]),
        ("accept_welcome_short", vec![Control::Welcome(short)]),
    ]
}

/// Bytes that end the link, and a word of what a person reads in the log.
fn errors() -> Vec<(&'static str, DecodeError, &'static str)> {
    use DecodeError as E;
    use FrameType as T;
    let field = |frame, tag, fault| E::Field { frame, tag, fault };
    let wrong_length = |frame, stream, length, expected| E::WrongLength { frame, stream, length, expected };
    let too_long = |kind, stream, length, max| E::TooLong { kind: kind as u8, stream, length, max };
    let short_tag = FieldFault::Length { length: 2, expected: 4 };
    vec![
        ("error_magic_http2", E::BadMagic { first: *b"PRI * HT", count: 8 }, "Konnectivity agent"),
        ("error_magic_last_byte", E::BadMagic { first: *b"\xabTAUT1\r\r", count: 8 }, r"\xabTAUT1\r\r"),
        ("error_critical_type", E::UnknownCriticalFrame { kind: 99, stream: 5 }, "unknown type 99"),
        ("error_critical_ack", E::UnknownCriticalFrame { kind: 21, stream: 0 }, "ACK"),
        ("error_stream_zero", E::StreamMissing { frame: T::Data }, "DATA with stream id 0"),
        ("error_stream_on_link", E::StreamUnexpected { frame: T::Ping, stream: 7 }, "stream 7"),
        ("error_window_zero", E::ZeroCredit { stream: 7 }, "no credit"),
        ("error_ping_length", wrong_length(T::Ping, 0, 7, 8), "PING"),
        ("error_drain_length", wrong_length(T::Drain, 0, 1, 0), "DRAIN"),
        ("error_close_length", wrong_length(T::CloseReq, 7, 3, 2), "CLOSE_REQ"),
        ("error_dial_req_short", wrong_length(T::DialReq, 7, 3, 4), "DIAL_REQ"),
        ("error_dial_rsp_empty", wrong_length(T::DialRsp, 7, 0, 1), "DIAL_RSP"),
        ("error_dial_rsp_long", wrong_length(T::DialRsp, 7, 2, 1), "DIAL_RSP"),
        ("error_dial_rsp_result", E::BadResult { stream: 7, result: 2 }, "result 2"),
        ("error_target_utf8", E::NotUtf8 { frame: T::DialReq, text: "target", at: 2 }, "target is not UTF-8"),
        (
            "error_target_long",
            E::TextTooLong { frame: T::DialReq, text: "target", length: 513, max: 512 },
            "513",
        ),
        ("error_control_long", too_long(T::GoAway, 0, 4097, 4096), "GOAWAY"),
        ("error_hello_long", too_long(T::Hello, 0, 16_385, 16_384), "16385"),
        ("error_data_long", too_long(T::Data, 7, 65_521, 65_520), "at most 65520"),
        ("error_hello_twice", field(T::Hello, 4, FieldFault::Twice), "agent_id"),
        ("error_hello_missing", field(T::Hello, 4, FieldFault::Missing), "agent_id"),
        ("error_hello_critical_field", field(T::Hello, 0x1234, FieldFault::UnknownCritical), "critical"),
        ("error_hello_truncated", E::FieldTruncated { frame: T::Hello, at: 8 }, "byte 8"),
        ("error_hello_versions", field(T::Hello, 1, FieldFault::Value), "versions"),
        ("error_hello_empty_id", field(T::Hello, 4, FieldFault::Value), "agent_id"),
        ("error_hello_window", field(T::Hello, 9, FieldFault::Value), "window"),
        ("error_hello_field_length", field(T::Hello, 10, short_tag), "2 bytes, not 4"),
        ("error_welcome_data_len", field(T::Welcome, 10, FieldFault::Value), "data_len_max"),
        ("error_welcome_missing", field(T::Welcome, 2, FieldFault::Missing), "version"),
    ]
}

fn bytes_of(event: &Event) -> Vec<u8> {
    let mut out = Vec::new();
    match event {
        Event::Control(control) => encode_control(control, &mut out),
        Event::Data { stream, bytes, fin } => {
            out.extend_from_slice(&encode_data_header(*stream, bytes.len() as u32, *fin));
            out.extend_from_slice(bytes);
        }
    }
    out
}

#[test]
fn what_is_sent_is_the_vector_and_the_vector_means_what_was_sent() {
    for (name, event) in exact() {
        assert_eq!(bytes_of(&event), vector(name), "{name}");
        let got = run(Decoder::new(WIDE), [&vector(name)[..]]);
        assert_eq!((got.events, got.error), (vec![event], None), "{name}");
    }
    let mut sent = MAGIC.to_vec();
    encode_control(&Control::Hello(greeting()), &mut sent);
    assert_eq!(sent, vector("magic_hello"));
    let got = run(Decoder::after_magic(GREETING), sent.chunks(1));
    assert_eq!((got.events, got.error), (vec![Event::Control(Control::Hello(greeting()))], None));
}

#[test]
fn what_a_later_version_may_send_is_accepted() {
    for (name, controls) in accepted() {
        let want: Vec<Event> = controls.into_iter().map(Event::Control).collect();
        for seed in 0..20 {
            let got = run(Decoder::new(OPEN), split(&vector(name), seed));
            assert_eq!((&got.events, got.error), (&want, None), "{name}");
        }
    }
}

#[test]
fn what_breaks_a_rule_has_its_own_error() {
    for (name, error, word) in errors() {
        let decoder = if name.contains("magic") { Decoder::after_magic } else { Decoder::new };
        let bytes = vector(name);
        assert_eq!(decoder(WIDE).next(&mut &bytes[..]), Err(error), "{name}");
        assert!(error.to_string().contains(word), "{name}: {error}");
        for seed in 0..20 {
            let cut = run(decoder(WIDE), split(&bytes, seed));
            assert_eq!(cut, run(decoder(WIDE), [&bytes[..]]), "{name}");
            assert_eq!(cut.events, []);
        }
    }
}

#[test]
fn every_type_has_a_vector() {
    let mut seen: BTreeSet<u8> = exact()
        .iter()
        .map(|(_, event)| match event {
            Event::Control(control) => control.frame_type() as u8,
            Event::Data { .. } => FrameType::Data as u8,
        })
        .collect();
    assert!(seen.insert(FrameType::Ack as u8), "ACK is reserved, nobody sends it");
    assert_eq!(seen, FrameType::ALL.iter().map(|frame| *frame as u8).collect());
}

#[test]
fn every_file_is_tested_and_is_a_seed_of_the_fuzzer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tested: BTreeSet<String> = BTreeSet::from(["magic_hello".to_owned()]);
    tested.extend(exact().into_iter().map(|(name, _)| name.to_owned()));
    tested.extend(accepted().into_iter().map(|(name, _)| name.to_owned()));
    tested.extend(errors().into_iter().map(|(name, ..)| name.to_owned()));
    let files = fs::read_dir(root.join("vectors")).unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_stem()?.to_str()?.to_owned();
        path.extension().is_some_and(|extension| extension == "hex").then_some(name)
    });
    assert_eq!(files.collect::<BTreeSet<_>>(), tested);
    for name in tested {
        let seed = fs::read(root.join("../fuzz/seeds/decoder").join(&name));
        let seed =
            seed.unwrap_or_else(|error| panic!("no seed {name} ({error}): see wire/vectors/README.md"));
        assert_eq!(seed, vector(&name), "{name}");
    }
}
