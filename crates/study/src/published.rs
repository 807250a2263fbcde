//! `published.csv`: what a study printed.

use serde::Deserialize;

use crate::error::Error;

/// How far a published value can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A measurement that others can be held against.
    Calibration,
    /// A condition, a definition, or a number of another layer.
    Context,
    /// Doubtful or contradicted; shown, and never used to judge.
    Contested,
}

impl Kind {
    /// Its word.
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
    /// The value, as text: not all are numbers.
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// How near is near, as text.
    pub tolerance: String,
    /// How far it can be trusted.
    pub kind: Kind,
    /// Where in the study.
    pub place: String,
    /// Of what, in few words.
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
                return Err(wrong(format!("metric {:?} is there twice", row.metric)));
            }
            found.push(row);
        }
        Ok(found)
    }

    /// The number, also of `~0.9` and of `303+-20`.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        let text = self.value.trim_start_matches(['~', '<', '>']);
        text.split("+-").next()?.trim().parse().ok()
    }

    /// The number in the unit of our quantities (ns, 1/s, B/s, 1), and the factor that leads there.
    #[must_use]
    pub fn in_base(&self) -> Option<f64> {
        let factor = match self.unit.as_str() {
            "ns" | "x" | "ratio" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "%" => 0.01,
            "Mbit/s" => 1e6 / 8.0,
            "MB/s" => f64::from(1 << 20),
            _ => return None,
        };
        Some(self.number()? * factor)
    }

    /// The tolerance as a share of the value, where it is one: `5%` is 0.05.
    #[must_use]
    pub fn relative_tolerance(&self) -> Option<f64> {
        let first = self.tolerance.split(';').next()?.trim();
        Some(first.strip_suffix('%')?.parse::<f64>().ok()? / 100.0)
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
        assert_eq!(rows[0].relative_tolerance(), Some(0.2));
        assert_eq!((rows[1].in_base(), rows[2].number()), (Some(303e9), None));
    }

    #[test]
    fn errors_name_the_line_and_what_is_allowed() {
        let error = |rows: &str| Published::parse("x.csv", &format!("{HEAD}{rows}")).unwrap_err();
        let said = error("a,1,us,5%,certain,s,w\n").to_string();
        assert!(said.starts_with("x.csv: line 2") && said.contains("contested"), "{said}");
        assert!(error("a,1,us,,context,s,w\na,2,us,,context,s,w\n").what.contains("twice"));
    }
}
