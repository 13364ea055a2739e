//! Bodies that somebody's hop once changed.

use std::fmt::Write as _;

use posthorn_domain::limits;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// Those that are known to be awkward, those at a limit, and a hundred whose numbers are.
pub(super) fn awkward() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = known().into_iter().map(Vec::from).collect();
    bodies.push(nested(limits::PAYLOAD_DEPTH, "[", "]"));
    bodies.push(nested(limits::PAYLOAD_DEPTH, r#"{"a":"#, "}"));
    bodies.push(string_of(limits::PAYLOAD_BYTES - 1));
    bodies.push(string_of(limits::PAYLOAD_BYTES));
    for length in [
        limits::COMPRESS_ABOVE,
        limits::COMPRESS_ABOVE + 1,
        65_535,
        65_536,
    ] {
        bodies.push(string_of(length));
    }
    bodies.extend((0..100).map(numbers));
    bodies
}

/// A small one that was drawn: any value, spelled and spaced in any way.
pub(super) fn drawn(dice: &mut StdRng) -> Vec<u8> {
    let mut text = String::new();
    value(dice, 4, &mut text);
    text.into_bytes()
}

/// Each is a whole token.
const SCALARS: [&str; 12] = [
    "{}",
    "[]",
    "null",
    "true",
    "-0",
    "1.10",
    "1E400",
    "18446744073709551616",
    "9007199254740993.000e-0",
    r#""\ud83d\ude00""#,
    r#""\udc00\u0000\/""#,
    r#""""#,
];

/// Each may stand in a string.
const IN_STRINGS: [&str; 10] = [
    "a", "é", "e\u{301}", "😀", "\u{2028}", "\u{7f}", r"\u00e9", r"\n", r#"\""#, r"\ud800",
];

const SPACES: [&str; 6] = ["", "", "", " ", "\r\n\t", "\n  "];

fn value(dice: &mut StdRng, levels: u32, text: &mut String) {
    let one_of = |dice: &mut StdRng, what: &[&'static str]| *what.choose(dice).unwrap();
    match dice.random_range(0..if levels == 0 { 3 } else { 5 }) {
        0 => text.push_str(one_of(dice, &SCALARS)),
        1 => write!(
            text,
            "{}.{:03}",
            dice.random::<i64>(),
            dice.random_range(0..1000)
        )
        .unwrap(),
        2 => string(dice, text),
        kind => {
            text.push(if kind == 3 { '[' } else { '{' });
            for place in 0..dice.random_range(1..5) {
                text.push_str(if place == 0 { "" } else { "," });
                text.push_str(one_of(dice, &SPACES));
                if kind == 4 {
                    string(dice, text);
                    text.push_str(one_of(dice, &SPACES));
                    text.push(':');
                }
                value(dice, levels - 1, text);
                text.push_str(one_of(dice, &SPACES));
            }
            text.push(if kind == 3 { ']' } else { '}' });
        }
    }
}

fn string(dice: &mut StdRng, text: &mut String) {
    text.push('"');
    for _ in 0..dice.random_range(0..8) {
        text.push_str(IN_STRINGS.choose(dice).unwrap());
    }
    text.push('"');
}

fn known() -> Vec<&'static str> {
    vec![
        // Big integers (A01).
        r#"{"a":9007199254740993,"b":50755254975729665,"c":8202522731445525542,"d":18446744073709551616}"#,
        // The spelling of numbers (A02).
        r#"{"a":1.0,"b":1e3,"c":-0,"d":1E400,"e":-1.7976931348623157e+308,"f":1.10,"g":1E-7}"#,
        "[1e131071]",
        "1E200000",
        // The order of keys, and the same key twice (A04).
        r#"{"b":1,"a":2,"cc":0,"c":{}}"#,
        r#"{"b":1,"a":2,"b":3}"#,
        r#"{"":0,"":1,"\u0000":2}"#,
        // Tiny ones (A06).
        "{}",
        r#"{"a":1}"#,
        "[]",
        r#"{"a" : 1}"#,
        // White space inside (A07).
        "{\"a\":\t1,\r\n \"b\":2 }",
        "[ \n ]",
        // Emoji, raw and escaped (A08).
        r#"{"t":"😀é"}"#,
        r#"{"t":"\ud83d\ude00\u00e9"}"#,
        // A lone surrogate (A10), an escaped NUL (A11).
        r#"{"t":"\ud800"}"#,
        r#"{"t":"\udc00\ud800"}"#,
        r#"{"t":"a\u0000b"}"#,
        // Bytes are not characters (A13).
        r#"{"t":"🙄ïé☆"}"#,
        r#"{"t":"é","u":"e\u0301","v":"é"}"#,
        // Anything at the top (A19).
        r#""hi""#,
        "5",
        "null",
        "true",
        r#""""#,
        "-0.0e-0",
        // What others escape, or stop escaping.
        r#"{"html":"</script><b>&amp;\/","slash":"\/\\/"}"#,
        r#"{"__proto__":{"a":1},"constructor":null,"type":"x","payload":{}}"#,
        "{\"line\":\"\u{2028}\u{2029}\u{7f}\u{feff}\"}",
        r#"{"controls":"\b\f\n\r\t\u001f\u007F"}"#,
    ]
}

fn nested(levels: usize, open: &str, close: &str) -> Vec<u8> {
    let inside = if open == "[" { "" } else { "1" };
    format!("{}{inside}{}", open.repeat(levels), close.repeat(levels)).into_bytes()
}

/// A JSON string of this many bytes, quotes included.
fn string_of(bytes: usize) -> Vec<u8> {
    let letters: Vec<u8> = (b'a'..=b'w').cycle().take(bytes - 2).collect();
    [b"\"", letters.as_slice(), b"\""].concat()
}

/// An object whose numbers no double holds, and whose keys are out of order.
fn numbers(seed: u64) -> Vec<u8> {
    let mut text = String::from("{");
    for key in 0..20_u64 {
        let digits = 9_007_199_254_740_993_u64 + seed * 1_000_003 + key * 7;
        let comma = if key == 0 { "" } else { "," };
        let scale = (seed * 31 + key * 17) % 400;
        write!(text, "{comma}\"k{}\":{digits}.{key}0e-{scale}", 19 - key).unwrap();
    }
    text.push('}');
    text.into_bytes()
}
