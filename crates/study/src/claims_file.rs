//! `claims.toml`, read and checked: the claims, and which of our numbers are shown beside published
//! values.

use serde::Deserialize;

use crate::advice::Advice;
use crate::claim::Claim;
use crate::error::{self, Error};
use crate::plan::Plan;
use crate::published::Published;
use crate::value::{self, Because, Value};

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimsFile {
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    #[serde(default, rename = "value")]
    pub values: Vec<Value>,
    #[serde(default, rename = "absent")]
    pub absent: Vec<Because>,
    #[serde(default)]
    pub contested: Vec<Because>,
    #[serde(default)]
    pub advice: Vec<Advice>,
}

impl ClaimsFile {
    pub(crate) fn parse(
        file: &str,
        text: &str,
        plan: &Plan,
        published: &[Published],
    ) -> Result<Self, Error> {
        let found: Self = toml::from_str(text).map_err(|e| error::toml(file, text, &e))?;
        let wrong = |what: String| Error { file: file.to_owned(), what };
        for (i, claim) in found.claims.iter().enumerate() {
            let at = |what: String| wrong(format!("claim {:?}: {what}", claim.key));
            if found.claims[..i].iter().any(|other| other.key == claim.key) {
                return Err(at("this key is used twice".to_owned()));
            }
            claim.check(plan, published).map_err(at)?;
        }
        for advice in &found.advice {
            let at = |what: String| wrong(format!("advice {:?}: {what}", advice.says));
            advice.check(&found.claims).map_err(at)?;
        }
        let reasons = (&*found.absent, &*found.contested);
        value::check(&found.values, reasons, plan, published).map_err(wrong)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_measure::Quantity;

    use super::*;
    use crate::operand::Stat;

    fn parse(text: &str) -> Result<ClaimsFile, String> {
        let plan = "key='a'\ntitle='T'\nsource='S'\nhardware='H'\n[[figure]]\nkey='f'\ntitle='F'\n\
                    [[figure.sweep]]\nname='s'\nrun='ping'\n";
        let plan = Plan::parse("plan", plan).unwrap();
        let rows = "metric,value,unit,tolerance,kind,place,what\nm,5,us,,context,,\n\
                    w,so,-,,context,,\nd,5,us,,contested,,\n";
        let published = Published::parse("csv", rows).unwrap();
        ClaimsFile::parse("a/claims.toml", text, &plan, &published).map_err(|e| e.to_string())
    }

    fn claim(changes: &[(&str, &str)]) -> Result<ClaimsFile, String> {
        let mut lines = vec![
            ("key", "'c'"),
            ("says", "'s'"),
            ("left", "{figure='f', quantity='round_trip_ns', where={op='send'}}"),
            ("relation", "'<'"),
            ("right", "{where={op='write'}}"),
            ("source", "'p. 1'"),
        ];
        for change in changes {
            lines.retain(|line| line.0 != change.0);
            lines.push(*change);
        }
        let text: Vec<String> = lines.iter().map(|(k, v)| format!("{k} = {v}")).collect();
        parse(&format!("[[claim]]\n{}\n", text.join("\n")))
    }

    #[test]
    fn the_right_side_takes_over_what_it_does_not_name() {
        let file = claim(&[]).unwrap();
        let right = file.claims[0].right_operand();
        assert_eq!(right.quantity(), Some(Quantity::RoundTrip));
        assert_eq!(right.place["op"].as_str(), Some("write"));
        let left = ("left", "{figure='f', finding='pattern', number='base_ns'}");
        let of = |right| claim(&[left, ("right", right)]).unwrap().claims[0].right_operand();
        let right = of("{where={op='write'}}");
        assert_eq!(right.described(), "pattern: base_ns");
        // Another kind of number has its own name.
        assert_eq!(of("{quantity='round_trip_ns'}").described(), "median round trip");
        assert_eq!(of("{finding='knee'}").described(), "knee");
    }

    #[test]
    fn errors_name_file_key_and_what_is_allowed() {
        for (change, said) in [
            (
                ("left", "{quantity='round_trip_ns'}"),
                "claim \"c\": left: it does not name a figure",
            ),
            (("left", "{figure='g', quantity='round_trip_ns'}"), "the figures are f"),
            (
                ("left", "{figure='f', quantity='rtt'}"),
                "no quantity \"rtt\"; the quantities are one_way_ns",
            ),
            (("left", "{figure='f', sweep='t', quantity='rate_per_s'}"), "it has s"),
            (
                ("left", "{figure='f', finding='knee', stat='max'}"),
                "a finding cannot have `quantity`",
            ),
            (
                ("left", "{figure='f', quantity='rate_per_s', above=1, stat='max'}"),
                "cannot have `stat`",
            ),
            (("left", "{figure='f', quantity='rate_per_s', number='a_ns'}"), "needs a `finding`"),
            (("relation", "'='"), "unknown variant `=`, expected one of `<`"),
            (("relation", "'x'"), "needs a factor"),
            (("relation", "'rises above'"), "needs a range"),
            (("right", "{published='n'}"), "no metric \"n\""),
            (("right", "{published='w'}"), "not a number"),
            (("right", "{published='d'}"), "\"d\" is contested: such values are shown"),
            (("tolerance", "2"), "at least 0"),
            (("every", "'yes'"), "expected a boolean"),
            (("on", "['system']"), "be given together"),
            (("range", "{parameter='size_bytes', from=9, to=1}"), "exceeds"),
            (("colour", "1"), "unknown field `colour`"),
        ] {
            let found = claim(&[change]).expect_err(said);
            assert!(found.starts_with("a/claims.toml: ") && found.contains(said), "{found}");
        }
    }

    #[test]
    fn the_book_names_every_number_of_a_series() {
        let chapter = include_str!("../../../docs/book/src/studies.md");
        let (_, list) = chapter.split_once("`stat` chooses ").unwrap();
        let (list, _) = list.split_once(';').unwrap();
        for stat in [
            Stat::Median,
            Stat::Mean,
            Stat::Min,
            Stat::Max,
            Stat::P10,
            Stat::P90,
            Stat::P99,
            Stat::P999,
        ] {
            assert!(list.contains(&format!("`{}`", stat.name())), "{} in {list}", stat.name());
        }
    }

    #[test]
    fn errors_of_values_name_the_metric_and_what_is_allowed() {
        let side = "{figure='f',quantity='rate_per_s'}";
        let value = |metric: &str, rest: &str| {
            format!("[[value]]\nmetric='{metric}'\nours={side}\n{rest}\n")
        };
        let twice = [value("m", ""), value("m", "")].concat();
        let both = [value("m", ""), "[[absent]]\nmetrics=['m']\nbecause='b'".to_owned()].concat();
        for (text, said) in [
            (value("q", ""), "value \"q\": published.csv has no metric"),
            (value("m", "over={figure='g'}"), "over: there is no figure \"g\""),
            (value("m", "over={}\nless={}"), "cannot be combined"),
            (value("m", "as='increase'"), "it needs `over`"),
            (value("m", "per=2"), "it needs `less`"),
            (value("m", "less=[]"), "`less` names nothing"),
            (value("m", "").replace("',quantity", "',alone=true,quantity"), "remove `alone`"),
            (value("m", "less={}\nper=0"), "must be above 0"),
            (value("m", "shown=''"), "`shown` must say why"),
            (twice, "this metric is used twice"),
            (both, "remove one"),
            ("[[absent]]\nmetrics=['q*']\nbecause='b'".to_owned(), "\"q*\": published.csv has no"),
            (
                "[[absent]]\nmetrics=['m']\nbecause=' '".to_owned(),
                "absent m: `because` must give the reason",
            ),
            ("[[contested]]\nmetrics=['m']\nbecause='b'".to_owned(), "no such contested metric"),
        ] {
            let found = parse(&text).expect_err(said);
            assert!(found.contains(said), "{found}");
        }
        for (rest, said) in [
            ("claim='c'", "advice \"s\": there is no claim \"c\""),
            ("", "it needs a `claim`, or `because`"),
            ("claim='c'\nbecause='b'", "there is no claim"),
        ] {
            let found = parse(&format!("[[advice]]\nsays='s'\n{rest}\n")).expect_err(said);
            assert!(found.contains(said), "{found}");
        }
        let fine = [
            value("m", "over={where={op='send'}}"),
            "[[absent]]\nmetrics=['d', 'w*']\n\
            because='of another layer'"
                .to_owned(),
        ]
        .concat();
        let file = parse(&fine).unwrap();
        assert!(file.absent[0].names("w") && !file.absent[0].names("m"));
    }
}
