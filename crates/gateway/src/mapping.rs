//! Which parts of the samples of its sources a path takes: `node`, `node.data[0-2]`,
//! `node.data[voltage]`, `node.hdr.sequence`, `node.ts.origin`.

use rdmalab_sample::{Kind, SampleRef, Signal, Value};

/// One source of a path, with what is taken of its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The node.
    pub node: String,
    /// What is taken.
    pub what: What,
}

/// What is taken of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// All values.
    All,
    /// The values from a name or number to another one, both included.
    Values(Bound, Bound),
    /// The sequence number.
    Sequence,
    /// The number of values.
    Length,
    /// The time of origin, as two integers: seconds and nanoseconds.
    Origin,
    /// The time of arrival, likewise.
    Received,
}

/// The end of a range of signals.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// By its number, from 0.
    Number(usize),
    /// By its name.
    Name(String),
}

impl Part {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong, with what is right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some(at) = text.find(['.', '[']) else {
            return Ok(Self { node: text.to_owned(), what: What::All });
        };
        let (node, rest) = text.split_at(at);
        let what = match rest {
            ".hdr.sequence" => What::Sequence,
            ".hdr.length" => What::Length,
            ".ts.origin" => What::Origin,
            ".ts.received" => What::Received,
            ".data" => What::All,
            _ => {
                let inner = rest.strip_prefix(".data").unwrap_or(rest);
                let inner = inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
                range(inner.ok_or_else(|| {
                    format!(
                        "{rest:?} names no part of a sample; .data[0-2], .hdr.sequence, \
                         .hdr.length, .ts.origin and .ts.received do"
                    )
                })?)
            }
        };
        Ok(Self { node: node.to_owned(), what })
    }

    /// The signals that it gives, of a source with these signals.
    ///
    /// # Errors
    /// When there are no such signals.
    pub fn signals(&self, of: &[Signal]) -> Result<Vec<Signal>, String> {
        let time = |what: &str| {
            let signal = |part: &str| Signal {
                unit: part.to_owned(),
                ..Signal::new(format!("{what}_{part}"), Kind::Integer)
            };
            vec![signal("s"), signal("ns")]
        };
        Ok(match &self.what {
            What::Sequence => vec![Signal::new("sequence", Kind::Integer)],
            What::Length => vec![Signal::new("length", Kind::Integer)],
            What::Origin => time("origin"),
            What::Received => time("received"),
            What::All | What::Values(..) => of[self.values(of)?].to_vec(),
        })
    }

    /// The numbers of the values that it takes.
    ///
    /// # Errors
    /// As [`Part::signals`].
    pub fn values(&self, of: &[Signal]) -> Result<std::ops::Range<usize>, String> {
        let What::Values(from, to) = &self.what else { return Ok(0..of.len()) };
        let place = |bound: &Bound| match bound {
            Bound::Number(number) => Ok(*number),
            Bound::Name(name) => of
                .iter()
                .position(|signal| signal.name == *name)
                .ok_or_else(|| format!("{} has no signal {name:?}", self.node)),
        };
        let (from, to) = (place(from)?, place(to)?);
        if from > to || to >= of.len() {
            let (node, count) = (&self.node, of.len());
            return Err(format!(
                "[{from}-{to}]: the signals of {node} are 0 to {}",
                count.max(1) - 1
            ));
        }
        Ok(from..to + 1)
    }

    /// Calls `put` with each value that it takes of a sample; `range` are those of
    /// [`Part::values`]. Values that the sample lacks keep what they were.
    pub fn take(
        &self,
        sample: SampleRef<'_>,
        range: std::ops::Range<usize>,
        mut put: impl FnMut(usize, Value),
    ) {
        let integer = |number: u64| Value::from_integer(number as i64);
        let mut time = |stamp: Option<rdmalab_sample::Timestamp>| {
            let stamp = stamp.unwrap_or_default();
            put(0, Value::from_integer(stamp.seconds));
            put(1, Value::from_integer(stamp.nanoseconds));
        };
        match &self.what {
            What::Origin => time(sample.origin()),
            What::Received => time(sample.received()),
            What::Sequence => put(0, integer(sample.sequence().unwrap_or_default())),
            What::Length => put(0, integer(sample.len() as u64)),
            What::All | What::Values(..) => {
                for (at, number) in range.enumerate() {
                    if let Some(value) = sample.value(number) {
                        put(at, value);
                    }
                }
            }
        }
    }
}

fn range(text: &str) -> What {
    let bound = |text: &str| match text.trim().parse() {
        Ok(number) => Bound::Number(number),
        Err(_) => Bound::Name(text.trim().to_owned()),
    };
    match text.split_once('-') {
        Some((from, to)) => What::Values(bound(from), bound(to)),
        None => What::Values(bound(text), bound(text)),
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_sample::{Pool, Timestamp};

    use super::*;

    #[test]
    fn expressions_name_signals_by_number_and_by_name() {
        let signals = Signal::numbered(4, Kind::Float);
        let of = |text: &str| {
            let part = Part::parse(text).unwrap();
            let names = part.signals(&signals)?;
            Ok::<_, String>(names.iter().map(|s| s.name.clone()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of("a").unwrap(), "signal0 signal1 signal2 signal3");
        assert_eq!(of("a.data[1-2]").unwrap(), "signal1 signal2");
        assert_eq!(of("a[3]").unwrap(), "signal3");
        assert_eq!(of("a.data[signal2-signal3]").unwrap(), "signal2 signal3");
        assert_eq!(of("a.hdr.sequence").unwrap(), "sequence");
        assert_eq!(of("a.ts.origin").unwrap(), "origin_s origin_ns");
        for (text, what) in
            [("a.data[2-4]", "0 to 3"), ("a.data[2-1]", "0 to 3"), ("a[x]", "no signal \"x\"")]
        {
            assert!(of(text).unwrap_err().contains(what), "{text}");
        }
        let why = Part::parse("a.stats.owd.last").unwrap_err();
        assert!(why.contains("names no part"), "{why}");
    }

    #[test]
    fn parts_of_a_sample_are_taken() {
        let mut pool = Pool::new(1, 4);
        let mut one = pool.take().unwrap();
        let mut sample = pool.get_mut(&mut one);
        sample.set_sequence(9);
        sample.set_origin(Timestamp::new(5, 6));
        for value in [1, 2, 3] {
            assert!(sample.push(Value::from_integer(value)));
        }
        let signals = Signal::numbered(4, Kind::Integer);
        let taken = |text: &str| {
            let part = Part::parse(text).unwrap();
            let mut found = vec![-1; part.signals(&signals).unwrap().len()];
            let range = part.values(&signals).unwrap();
            part.take(pool.get(&one), range, |at, value| found[at] = value.integer());
            found
        };
        assert_eq!(taken("a.data[1-3]"), [2, 3, -1], "a missing value stays");
        assert_eq!(taken("a.hdr.sequence"), [9]);
        assert_eq!(taken("a.hdr.length"), [3]);
        assert_eq!(taken("a.ts.origin"), [5, 6]);
    }
}
