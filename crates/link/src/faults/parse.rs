//! Parses a rule as users write it: `drop 1% of request`.

use std::net::IpAddr;

use rdmalab_wire::ids::{MASK_24, Psn, Qpn};

use super::{Action, Count, FlowEnd, Rule, Which};
use crate::address::{destination_of, gid_of};
use crate::packet::{Class, Medium};
use crate::units::{MAX_DELAY_NS, time, window};

const REQUESTS: u16 =
    Class::Send.bit() | Class::Write.bit() | Class::Read.bit() | Class::Atomic.bit();
const RESPONSES: u16 =
    Class::ReadResponse.bit() | Class::AtomicResponse.bit() | Class::Ack.bit() | Class::Nak.bit();

/// Names of packet types.
const TYPES: [(&str, u16); 11] = [
    ("all", u16::MAX),
    ("request", REQUESTS),
    ("response", RESPONSES),
    ("send", Class::Send.bit()),
    ("write", Class::Write.bit()),
    ("read", Class::Read.bit()),
    ("atomic", Class::Atomic.bit()),
    ("read-response", Class::ReadResponse.bit()),
    ("atomic-response", Class::AtomicResponse.bit()),
    ("ack", Class::Ack.bit()),
    ("nak", Class::Nak.bit()),
];

/// The actions and quirks of a specification.
pub(crate) const ACTIONS: &str = "drop, duplicate, reorder [N], corrupt, damage, delay TIME, \
                                  rate BITS, partition FROM..TO, rnr-nak, drop-response N, \
                                  damming [FROM..TO]";
const SELECTORS: &str = "P%, of TYPES, nth N, every N, first, again, psn A..B, to X, from X, \
                         over memory|network, inline, gathered, payload A..B, FROM..TO";

type Parsed<T> = Result<T, String>;

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Reads one rule.
///
/// # Errors
/// The reason, and what is allowed.
pub(crate) fn rule(item: &str) -> Parsed<Rule> {
    let mut words = item.split_whitespace().peekable();
    let name = words.next().unwrap_or_default();
    let action = action(name, &mut words)?;
    let mut rule = Rule {
        text: item.to_owned(),
        action,
        chance: None,
        classes: u16::MAX,
        count: Count::All,
        psns: None,
        to: None,
        from: None,
        which: Which::Any,
        medium: None,
        is_inline: None,
        payload: None,
        window: None,
    };
    while let Some(word) = words.next() {
        selector(&mut rule, word, &mut words)?;
    }
    if rule.action == Action::RnrNak && rule.is_inline.is_some() {
        return Err(
            "rnr-nak applies to arriving requests, and a receiver cannot know whether their \
             payload was inline or gathered: leave that out"
                .to_owned(),
        );
    }
    if name == "partition" && rule.window.is_none() {
        return Err("a partition needs a time range, as in partition 1s..2s".to_owned());
    }
    Ok(rule)
}

fn action(name: &str, words: &mut Words<'_>) -> Parsed<Action> {
    Ok(match name {
        "drop" | "partition" => Action::Drop,
        "duplicate" => Action::Duplicate,
        "corrupt" => Action::Corrupt,
        "damage" => Action::Damage,
        "reorder" => Action::Reorder(match words.peek().and_then(|word| word.parse().ok()) {
            Some(0) => return Err("reorder 0 has no effect: choose 1 or more".to_owned()),
            Some(by) => {
                words.next();
                by
            }
            None => 1,
        }),
        "delay" => {
            let ns = delay(words.next(), "delay 50us")?;
            let jitter_ns = match words.next_if_eq(&"jitter") {
                Some(_) => delay(words.next(), "delay 50us jitter 10us")?,
                None => 0,
            };
            Action::Delay { ns, jitter_ns }
        }
        "rate" => Action::Rate(rate(words.next())?),
        "rnr-nak" => Action::RnrNak,
        other => return Err(format!("{other:?} is not an action; the actions are {ACTIONS}")),
    })
}

fn delay(word: Option<&str>, like: &str) -> Parsed<u64> {
    let word = word.ok_or_else(|| format!("a delay needs a time, as in {like}"))?;
    let ns = time(word).ok_or_else(|| format!("{word:?} is not a time: write it as in {like}"))?;
    if ns > MAX_DELAY_NS {
        return Err(format!("{word} is too long: the limit is 60s"));
    }
    Ok(ns)
}

fn selector(rule: &mut Rule, word: &str, words: &mut Words<'_>) -> Parsed<()> {
    let mut value = |what: &str| words.next().ok_or_else(|| format!("{word} needs {what}"));
    match word {
        "of" => rule.classes = types(value("packet types, as in of send,write")?)?,
        "nth" => {
            let text = value("a number, as in nth 3 or nth 3,7")?;
            let numbers: Option<Vec<u64>> = text.split(',').map(|n| n.parse().ok()).collect();
            let numbers = numbers.filter(|numbers| !numbers.contains(&0));
            let wrong =
                || format!("{text:?} matches no packet: the packets of a flow are numbered from 1");
            rule.count = Count::Nth(numbers.ok_or_else(wrong)?);
        }
        "every" => {
            let text = value("a number, as in every 10")?;
            let number = text.parse().ok().filter(|number| *number > 0);
            rule.count = Count::Every(
                number.ok_or_else(|| format!("every {text:?} never matches: choose 1 or more"))?,
            );
        }
        "first" => rule.which = Which::First,
        "again" => rule.which = Which::Again,
        "psn" => rule.psns = Some(psns(value("numbers, as in psn 5 or psn 5..9")?)?),
        "inline" => rule.is_inline = Some(true),
        "gathered" => rule.is_inline = Some(false),
        "payload" => rule.payload = Some(payload(value("bytes, as in payload 129..")?)?),
        "to" => rule.to = Some(end(value("a queue pair or an address")?)?),
        "from" => rule.from = Some(end(value("an address")?)?),
        "over" => {
            rule.medium = Some(match value("memory or network")? {
                "memory" => Medium::Memory,
                "network" => Medium::Network,
                other => return Err(format!("over {other:?}: choose memory or network")),
            });
        }
        _ if word.ends_with('%') => rule.chance = Some(chance(word)?),
        _ if word.contains("..") => rule.window = Some(window(word)?),
        _ => {
            return Err(format!(
                "{word:?} is not allowed here; after the action a rule may have {SELECTORS}"
            ));
        }
    }
    Ok(())
}

fn types(text: &str) -> Parsed<u16> {
    let mut classes = 0;
    for name in text.split(',') {
        let known = TYPES.iter().find(|(known, _)| *known == name);
        classes |= known.map(|(_, bits)| *bits).ok_or_else(|| {
            let names = TYPES.map(|(known, _)| known).join(", ");
            format!("{name:?} is not a packet type; the types are {names}")
        })?;
    }
    Ok(classes)
}

fn chance(word: &str) -> Parsed<u64> {
    let percent: Option<f64> = word.trim_end_matches('%').parse().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let percent =
        percent.ok_or_else(|| format!("{word} is not a probability: choose 0% to 100%"))?;
    // 100% saturates at 2^64 - 1, so one draw in 2^64 does not match.
    Ok((percent / 100.0 * 2f64.powi(64)) as u64)
}

fn number(text: &str) -> Option<u32> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|number| *number <= MASK_24)
}

fn psns(text: &str) -> Parsed<(Psn, Psn)> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let both = number(first).zip(number(last));
    let (first, last) = both.ok_or_else(|| {
        format!("{text:?} is not a PSN or a range of PSNs: write 5, 0x10 or 5..9, of 24 bits")
    })?;
    Ok((Psn::new(first), Psn::new(last)))
}

fn payload(text: &str) -> Parsed<(u32, u32)> {
    let wrong = || format!("{text:?} is not a length in bytes: write 64, 1..64, ..64 or 65..");
    let bound = |text: &str, none: u32| match text {
        "" => Ok(none),
        _ => text.parse().map_err(|_| wrong()),
    };
    let (least, most) = match text.split_once("..") {
        Some(ends) => ends,
        None if text.is_empty() => return Err(wrong()),
        None => (text, text),
    };
    let (least, most) = (bound(least, 0)?, bound(most, u32::MAX)?);
    if least > most {
        return Err(format!("payload {text} is an empty range: write the smaller number first"));
    }
    Ok((least, most))
}

fn end(text: &str) -> Parsed<FlowEnd> {
    if let Some(number) = number(text) {
        return Ok(FlowEnd::Qp(Qpn::new(number)));
    }
    text.parse()
        .map(|address: IpAddr| FlowEnd::Address(destination_of(gid_of(address))))
        .map_err(|_| format!("{text:?} is neither a queue pair (17, 0x11) nor an IP address"))
}

fn rate(word: Option<&str>) -> Parsed<u64> {
    let word = word.ok_or("a rate needs a number, as in rate 100Mbit")?;
    let wrong =
        || format!("{word:?} is not a rate: write 100kbit, 100Mbit or 1.5Gbit (bits per second)");
    let digits = word.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let unit = match &word[digits..] {
        "bit" => 1.0,
        "kbit" => 1e3,
        "Mbit" => 1e6,
        "Gbit" => 1e9,
        _ => return Err(wrong()),
    };
    let value: f64 = word[..digits].parse().map_err(|_| wrong())?;
    let bits = (value * unit) as u64;
    if bits == 0 { Err("a rate of 0 would drop everything: use drop".to_owned()) } else { Ok(bits) }
}
