//! A study: its three files, read and held against each other.

use std::fs;
use std::io;
use std::path::Path;

use crate::advice::Advice;
use crate::claim::Claim;
use crate::claims_file::ClaimsFile;
use crate::error::Error;
use crate::plan::Plan;
use crate::published::Published;
use crate::shipped::SHIPPED;
use crate::value::{Because, Value};

/// A published study.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// The figures that it measured.
    pub plan: Plan,
    /// The values that it printed.
    pub published: Vec<Published>,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// The numbers of ours that are shown beside its values.
    pub values: Vec<Value>,
    /// The published values without a number of ours, with the reasons.
    pub absent: Vec<Because>,
    /// Why values are contested.
    pub contested: Vec<Because>,
    /// What it advises.
    pub advice: Vec<Advice>,
}

impl Study {
    /// Reads a study from its three texts; `key` is its directory's name.
    ///
    /// # Errors
    /// The file, what is wrong with it, and what is allowed.
    pub fn parse(key: &str, plan: &str, published: &str, claims: &str) -> Result<Self, Error> {
        let file = |name: &str| format!("{key}/{name}");
        let plan = Plan::parse(&file("plan.toml"), plan)?;
        if plan.key != key {
            let what = format!("key = {:?}: it must be the directory's name, {key:?}", plan.key);
            return Err(Error { file: file("plan.toml"), what });
        }
        let published = Published::parse(&file("published.csv"), published)?;
        for figure in &plan.figures {
            let is_none = |metric: &&String| !published.iter().any(|p| p.metric == **metric);
            if let Some(other) = figure.calibrated_by.iter().find(is_none) {
                let (file, key) = (file("plan.toml"), &figure.key);
                let what =
                    format!("figure {key:?}: calibrated_by: there is no published value {other:?}");
                return Err(Error { file, what });
            }
        }
        let ClaimsFile { claims, values, absent, contested, advice } =
            ClaimsFile::parse(&file("claims.toml"), claims, &plan, &published)?;
        Ok(Self { plan, published, claims, values, absent, contested, advice })
    }

    /// The studies that are part of this program.
    ///
    /// # Errors
    /// None in a release: the tests parse all of these studies.
    pub fn shipped() -> Result<Vec<Self>, Error> {
        let parse = |&(key, plan, published, claims): &(&str, &str, &str, &str)| {
            Self::parse(key, plan, published, claims)
        };
        SHIPPED.iter().map(parse).collect()
    }

    /// The study in a directory. `published.csv` and `claims.toml` may be missing.
    ///
    /// # Errors
    /// The file, what is wrong with it, and what is allowed.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let key = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let key = key.unwrap_or_default();
        let text = |name: &str, instead: Option<&str>| {
            let path = dir.join(name);
            match (fs::read_to_string(&path), instead) {
                (Err(e), Some(instead)) if e.kind() == io::ErrorKind::NotFound => {
                    Ok(instead.to_owned())
                }
                (found, _) => found.map_err(|e| {
                    let file = path.display().to_string();
                    Error { file, what: format!("{e}; a study needs a plan.toml") }
                }),
            }
        };
        let head = "metric,value,unit,tolerance,kind,place,what\n";
        let published = text("published.csv", Some(head))?;
        Self::parse(&key, &text("plan.toml", None)?, &published, &text("claims.toml", Some(""))?)
    }

    /// The studies in a directory: each subdirectory with a `plan.toml`, by name.
    ///
    /// # Errors
    /// As [`Study::read`], and if there is no study.
    pub fn read_all(dir: &Path) -> Result<Vec<Self>, Error> {
        let wrong = |what: String| Error { file: dir.display().to_string(), what };
        let entries = fs::read_dir(dir).map_err(|e| wrong(e.to_string()))?;
        let mut found: Vec<_> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.join("plan.toml").is_file())
            .collect();
        found.sort();
        if found.is_empty() {
            return Err(wrong("there is no study: a study is a directory with a plan.toml".into()));
        }
        found.iter().map(|dir| Self::read(dir)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::Reliability;

    #[test]
    fn shipped_studies_can_be_read_and_have_something_to_say() {
        let studies = Study::shipped().unwrap();
        assert_eq!(studies.len(), 5);
        for study in &studies {
            let key = &study.plan.key;
            assert!(!study.plan.figures.is_empty(), "{key}");
            assert!(!study.published.is_empty(), "{key}");
            assert!(!study.claims.is_empty(), "{key}");
            assert!(!study.advice.is_empty(), "{key}");
            for value in study.published.iter().filter(|p| p.kind == Reliability::Contested) {
                let has_why = study.contested.iter().any(|entry| entry.names(&value.metric));
                assert!(
                    has_why,
                    "{key}: {} is contested, and claims.toml says not why",
                    value.metric
                );
            }
        }
    }

    #[test]
    fn a_directory_of_studies_needs_no_code() {
        let dir = tempfile::tempdir().unwrap();
        let said = Study::read_all(dir.path()).unwrap_err().to_string();
        assert!(said.contains("there is no study"), "{said}");
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        let plan = "key='own'\ntitle='T'\nsource='S'\nhardware='H'\nfigure=[]\n";
        fs::write(own.join("plan.toml"), plan).unwrap();
        assert_eq!(Study::read_all(dir.path()).unwrap()[0].plan.key, "own");
        fs::write(own.join("plan.toml"), plan.replace("'own'", "'other'")).unwrap();
        let said = Study::read_all(dir.path()).unwrap_err().to_string();
        assert!(said.contains("own/plan.toml: key = \"other\""), "{said}");
        let plan = plan.replace("figure=[]", "[[figure]]\nkey='f'\ntitle=''\ncalibrated_by=['m']");
        fs::write(own.join("plan.toml"), plan).unwrap();
        let said = Study::read_all(dir.path()).unwrap_err().to_string();
        assert!(said.contains("figure \"f\": calibrated_by: there is no published value \"m\""));
    }
}
