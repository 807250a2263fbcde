//! `published.csv`: the values that a study printed.

use serde::Deserialize;

use crate::error::Error;

/// How far a published value can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reliability {
    /// A measurement with which others can be compared.
    Calibration,
    /// A condition, a definition, or a number of another layer.
    Context,
    /// Doubtful or contradicted: shown, but never used for a verdict.
    Contested,
}

impl Reliability {
    /// The word in `published.csv`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calibration => "calibration",
            Self::Context => "context",
            Self::Contested => "contested",
        }
    }
}

/// One published value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its name within the study.
    pub metric: String,
    /// The value as text: some are not numbers.
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// The tolerance, as text: see [`Published::allowed`].
    pub tolerance: String,
    /// How far it can be trusted.
    pub kind: Reliability,
    /// The place in the study.
    pub place: String,
    /// What was measured, in a few words.
    pub what: String,
}

impl Published {
    /// Reads a file; `file` is its name in errors.
    ///
    /// # Errors
    /// The line, what is wrong with it, and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<Vec<Self>, Error> {
        let wrong = |what: String| Error { file: file.to_owned(), what };
        let mut found: Vec<Self> = Vec::new();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        for row in reader.deserialize() {
            let row: Self = row.map_err(|e| wrong(described(&e)))?;
            if found.iter().any(|other| other.metric == row.metric) {
                return Err(wrong(format!("metric {:?} is given twice", row.metric)));
            }
            found.push(row);
        }
        Ok(found)
    }

    /// The number, also from texts such as `~0.9` and `303+-20`.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        let text = self.value.trim_start_matches(['~', '<', '>']);
        text.split("+-").next()?.trim().parse().ok()
    }

    /// The number in the unit that records use: ns, 1/s, B/s, B, or 1 for counts.
    #[must_use]
    pub fn in_base(&self) -> Option<f64> {
        Some(self.number()? * self.scale()?)
    }

    /// The factor from its unit to that of records.
    fn scale(&self) -> Option<f64> {
        Some(match self.unit.as_str() {
            "ns" | "x" | "ratio" | "messages" | "code" | "buffers" | "Hz" | "B" => 1.0,
            "kHz" => 1e3,
            // The cited studies use these units for powers of two.
            "KB" | "KiB" => 1024.0,
            "us" | "us/node" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "%" => 0.01,
            "Mbit/s" => 1e6 / 8.0,
            "MB/s" => f64::from(1 << 20),
            _ => return None,
        })
    }

    /// The values within the tolerance, in the unit that records use: `5%` of the value, `factor
    /// 2`, `15 points` (of %), a plain share such as `0.02`, `250-1000` in its own unit, or
    /// `exact`. `None` if the tolerance is none of these.
    #[must_use]
    pub fn allowed(&self) -> Option<(f64, f64)> {
        let text = self.tolerance.split(';').next()?.trim();
        let (value, scale) = (self.in_base()?, self.scale()?);
        let around = |by: f64| Some((value - by, value + by));
        let number = |text: &str| text.trim().parse::<f64>().ok();
        if text == "exact" {
            return around(value.abs() * 1e-9);
        }
        if let Some(percent) = text.strip_suffix('%') {
            return around(value.abs() * number(percent)? / 100.0);
        }
        if let Some(points) = text.strip_suffix("points") {
            return around(number(points)? * scale);
        }
        if let Some(factor) = text.strip_prefix("factor") {
            let factor = number(factor)?;
            return Some((value / factor, value * factor));
        }
        if let Some((low, high)) = text.split_once('-') {
            return Some((number(low)? * scale, number(high)? * scale));
        }
        around(number(text)? * scale)
    }
}

/// Checks that there is such a metric and that it is a number.
pub(crate) fn is_published(published: &[Published], metric: &str) -> Result<(), String> {
    match published.iter().find(|p| p.metric == metric) {
        Some(found) if found.in_base().is_some() => Ok(()),
        Some(found) => {
            Err(format!("{metric:?} is {:?} {}, which is not a number", found.value, found.unit))
        }
        None => Err(format!("published.csv has no metric {metric:?}")),
    }
}

/// Checks that claims may be judged by this metric: values that the study itself, or arithmetic,
/// contradicts are only shown.
pub(crate) fn is_certain(published: &[Published], metric: &str) -> Result<(), String> {
    let is_it = |p: &&Published| p.metric == metric && p.kind == Reliability::Contested;
    match published.iter().find(is_it) {
        Some(_) => Err(format!(
            "{metric:?} is contested: such values are shown, and no claim is judged by one"
        )),
        None => Ok(()),
    }
}

fn described(error: &csv::Error) -> String {
    let line = error.position().map_or(0, csv::Position::line);
    let what = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
        _ => error.to_string(),
    };
    format!(
        "line {line}: {what} (columns: metric, value, unit, tolerance, kind, place, what; kinds: \
         calibration, context, contested)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "metric,value,unit,tolerance,kind,place,what\n";

    #[test]
    fn values_are_numbers_where_they_are() {
        let text = format!(
            "{HEAD}a,~0.9,us,20%,calibration,s,w\nb,303+-20,s,,context,s,w\nc,yes,-,,contested,s,w"
        );
        let rows = Published::parse("p", &text).unwrap();
        assert_eq!((rows[0].number(), rows[0].in_base()), (Some(0.9), Some(900.0)));
        assert_eq!(rows[0].allowed(), Some((720.0, 1080.0)));
        assert_eq!((rows[1].in_base(), rows[2].number()), (Some(303e9), None));
    }

    #[test]
    fn a_tolerance_is_what_is_allowed() {
        let of = |value: &str, unit: &str, tolerance: &str| {
            let text = format!("{HEAD}a,{value},{unit},{tolerance},calibration,s,w\n");
            let ends = Published::parse("p", &text).unwrap()[0].allowed()?;
            Some(((ends.0 * 1e6).round() / 1e6, (ends.1 * 1e6).round() / 1e6))
        };
        assert_eq!(of("6.2", "us", "10%; of a server"), Some((5580.0, 6820.0)));
        assert_eq!(of("120", "%", "15 points"), Some((1.05, 1.35)));
        assert_eq!(of("0.06", "%", "factor 2"), Some((0.0003, 0.0012)));
        assert_eq!(of("4.0", "ms", "3.3-5.5"), Some((3.3e6, 5.5e6)));
        assert_eq!(of("0.87", "ratio", "0.02"), Some((0.85, 0.89)));
        assert_eq!(of("12", "code", "exact"), Some((12.0, 12.0)));
        assert_eq!(of("12", "us", "order of magnitude"), None);
        assert_eq!(of("12", "QPs", "5%"), None);
    }

    #[test]
    fn errors_name_the_line_and_what_is_allowed() {
        let error = |rows: &str| Published::parse("x.csv", &format!("{HEAD}{rows}")).unwrap_err();
        let said = error("a,1,us,5%,certain,s,w\n").to_string();
        assert!(said.starts_with("x.csv: line 2") && said.contains("contested"), "{said}");
        assert!(error("a,1,us,,context,s,w\na,2,us,,context,s,w\n").what.contains("twice"));
    }
}
