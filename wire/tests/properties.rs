//! Properties of encoder and decoder over all frames, all splits and arbitrary bytes.

mod common;

use common::{Event, GREETING, OPEN, WIDE, run, split};
use proptest::collection::vec;
use proptest::prelude::*;
use tautline_wire::{
    CREDIT_MAX, Close, CloseCode, Control, DATA_LEN_MAX, Decoder, DialCode, DialFailure, DialReq, DialRsp,
    GoAway, GoAwayCode, Hello, ID_LEN_MAX, IDENTIFIERS_LEN_MAX, MAGIC, TARGET_LEN_MAX, TEXT_LEN_MAX,
    TOKEN_LEN_MAX, Welcome, Window, encode_control, encode_data_header,
};

fn stream() -> impl Strategy<Value = u64> {
    prop_oneof![1..10_u64, 1..=u64::MAX]
}

/// Shorter than every bound; `overlong_texts_are_cut_and_stay_valid` looks at the others.
fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..20).prop_map(String::from_iter)
}

fn close() -> impl Strategy<Value = Close> {
    (stream(), 0..CloseCode::ALL.len())
        .prop_map(|(stream, code)| Close { stream, code: CloseCode::ALL[code] })
}

fn dial_rsp() -> impl Strategy<Value = DialRsp> {
    let failure = (0..DialCode::ALL.len(), text())
        .prop_map(|(code, text)| DialFailure { code: DialCode::ALL[code], text });
    let result = prop_oneof![Just(Ok(())), failure.prop_map(Err)];
    (stream(), result).prop_map(|(stream, result)| DialRsp { stream, result })
}

fn hello() -> impl Strategy<Value = Hello> {
    let identity = (text(), text(), prop::option::of(text()));
    let numbers = (any::<u16>(), any::<u16>(), any::<u64>(), any::<u32>(), 0..=CREDIT_MAX, 1..=u32::MAX);
    (identity, numbers).prop_map(
        |((id, identifiers, token), (a, b, features, ping_interval_ms, window, data))| Hello {
            version_min: a.min(b),
            version_max: a.max(b),
            features,
            agent_id: if id.is_empty() { "a".into() } else { id },
            identifiers,
            token,
            ping_interval_ms,
            window,
            data_len_max: data,
        },
    )
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let numbers = (any::<u16>(), any::<u64>(), 1..=u32::MAX, 0..=CREDIT_MAX, 1..=u32::MAX);
    (text(), numbers).prop_map(|(id, (version, features, server_count, window, data_len_max))| Welcome {
        version,
        features,
        server_id: if id.is_empty() { "s".into() } else { id },
        server_count,
        window,
        data_len_max,
    })
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        (stream(), any::<u32>(), text()).prop_map(|(stream, time_left_ms, target)| {
            Control::DialReq(DialReq { stream, time_left_ms, target })
        }),
        dial_rsp().prop_map(Control::DialRsp),
        close().prop_map(Control::CloseReq),
        close().prop_map(Control::CloseRsp),
        close().prop_map(Control::DialCls),
        Just(Control::Drain),
        hello().prop_map(Control::Hello),
        welcome().prop_map(Control::Welcome),
        any::<u64>().prop_map(Control::Ping),
        any::<u64>().prop_map(Control::Pong),
        (stream(), 1..=u32::MAX).prop_map(|(stream, credit)| Control::Window(Window { stream, credit })),
        (0..GoAwayCode::ALL.len(), text())
            .prop_map(|(code, text)| Control::GoAway(GoAway { code: GoAwayCode::ALL[code], text })),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let bytes = prop_oneof![vec(any::<u8>(), 0..2), vec(any::<u8>(), 0..200)];
    let data =
        (stream(), bytes, any::<bool>()).prop_map(|(stream, bytes, fin)| Event::Data { stream, bytes, fin });
    prop_oneof![2 => control().prop_map(Event::Control), 1 => data]
}

fn encode(events: &[Event]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for event in events {
        match event {
            Event::Control(control) => encode_control(control, &mut out),
            Event::Data { stream, bytes, fin } => {
                out.extend_from_slice(&encode_data_header(*stream, bytes.len() as u32, *fin));
                out.extend_from_slice(bytes);
            }
        }
    }
    out
}

/// What a receiver reports of `sent`: empty DATA says nothing, neighbours of one stream are one run of bytes.
fn reported(sent: Vec<Event>) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for event in sent {
        if let Event::Data { stream, bytes, fin } = &event {
            if bytes.is_empty() && !fin {
                continue;
            }
            if let Some(Event::Data { stream: last, bytes: all, fin: last_fin @ false }) = events.last_mut()
                && last == stream
            {
                all.extend_from_slice(bytes);
                *last_fin = *fin;
                continue;
            }
        }
        events.push(event);
    }
    events
}

/// Bytes that reach deep: plausible headers (known types, small lengths) with anything behind them.
fn headers_with_noise() -> impl Strategy<Value = Vec<u8>> {
    let frame = (0..24_u8, any::<u8>(), 0..3_u64, 0..40_u32, vec(any::<u8>(), 0..40)).prop_map(
        |(kind, flags, stream, length, noise)| {
            let mut bytes = encode_data_header(1, length, false).to_vec();
            bytes[4] = kind;
            bytes[5] = flags & 0x8f;
            bytes[8..].copy_from_slice(&stream.to_be_bytes());
            bytes.extend_from_slice(&noise);
            bytes
        },
    );
    vec(frame, 1..6).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn any_frames_survive_any_split(sent in vec(event(), 0..12), seed: u64) {
        let bytes = encode(&sent);
        let got = run(Decoder::after_magic(WIDE), split(&bytes, seed));
        prop_assert_eq!(got.error, None);
        prop_assert_eq!(got.events, reported(sent));
    }

    #[test]
    fn one_byte_at_a_time_is_a_split_too(sent in vec(event(), 0..6)) {
        let bytes = encode(&sent);
        let got = run(Decoder::after_magic(WIDE), bytes.chunks(1));
        prop_assert_eq!(got.error, None);
        prop_assert_eq!(got.events, reported(sent));
    }

    #[test]
    fn arbitrary_bytes_mean_the_same_in_any_split(
        bytes in prop_oneof![vec(any::<u8>(), 0..300), headers_with_noise()], seed: u64,
    ) {
        for limits in [GREETING, OPEN, WIDE] {
            prop_assert_eq!(run(Decoder::new(limits), [&bytes[..]]), run(Decoder::new(limits), split(&bytes, seed)));
        }
        let [whole, cut] = [vec![&bytes[..]], split(&bytes, seed)].map(|cut| run(Decoder::after_magic(WIDE), cut));
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn damaged_frames_mean_the_same_in_any_split(
        sent in vec(event(), 1..6), seed: u64,
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), keep: prop::sample::Index,
    ) {
        let mut bytes = encode(&sent);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(keep.index(bytes.len()) + 1);
        let whole = run(Decoder::after_magic(WIDE), [&bytes[..]]);
        prop_assert_eq!(&whole, &run(Decoder::after_magic(WIDE), split(&bytes, seed)));
        for event in whole.events {
            if let Event::Control(control) = event {
                let again = run(Decoder::after_magic(WIDE), [&encode(&[Event::Control(control.clone())])[..]]);
                prop_assert_eq!(again.events, [Event::Control(control)], "what was decoded can be sent");
            }
        }
    }

    #[test]
    fn overlong_texts_are_cut_and_stay_valid(fill: char, extra in 0..5_usize) {
        let long = |len_max: usize| fill.to_string().repeat(len_max / fill.len_utf8() + 1 + extra);
        let failure = DialFailure { code: DialCode::Other, text: long(TEXT_LEN_MAX) };
        let sent = [
            Control::DialReq(DialReq { stream: 1, time_left_ms: 1, target: long(TARGET_LEN_MAX) }),
            Control::DialRsp(DialRsp { stream: 1, result: Err(failure) }),
            Control::GoAway(GoAway { code: GoAwayCode::Other, text: long(TEXT_LEN_MAX) }),
            Control::Hello(Hello {
                agent_id: long(ID_LEN_MAX),
                identifiers: long(IDENTIFIERS_LEN_MAX),
                token: Some(long(TOKEN_LEN_MAX)),
                data_len_max: 1,
                ..Hello::default()
            }),
            Control::Welcome(Welcome {
                server_id: long(ID_LEN_MAX), data_len_max: 1, server_count: 1, ..Welcome::default()
            }),
        ];
        let got = run(Decoder::after_magic(WIDE), [&encode(&sent.clone().map(Event::Control))[..]]);
        prop_assert_eq!(got.error, None);
        prop_assert_eq!(got.events.len(), sent.len());
        let Event::Control(Control::DialReq(request)) = &got.events[0] else { panic!("{:?}", got.events) };
        let room = TARGET_LEN_MAX - request.target.len();
        prop_assert!(room < fill.len_utf8(), "cut further than needed");
        prop_assert!(long(TARGET_LEN_MAX).starts_with(&request.target));
    }
}

#[test]
fn the_longest_data_frame_passes_and_one_byte_more_does_not() {
    let mut bytes = encode_data_header(3, DATA_LEN_MAX as u32, true).to_vec();
    bytes.resize(bytes.len() + DATA_LEN_MAX, 7);
    let got = run(Decoder::new(OPEN), bytes.chunks(1000));
    assert_eq!(got.events, [Event::Data { stream: 3, bytes: vec![7; DATA_LEN_MAX], fin: true }]);
    let header = encode_data_header(3, DATA_LEN_MAX as u32 + 1, true);
    assert!(run(Decoder::new(OPEN), [&header[..]]).error.is_some());
}
