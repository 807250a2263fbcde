//! What a study advises, each sentence with the claim that bears it.

use serde::Deserialize;

use crate::claim::Claim;

/// A sentence of advice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    /// What to do, in our words.
    pub says: String,
    /// The key of the claim from which it follows.
    #[serde(default)]
    pub claim: Option<String>,
    /// Why no claim bears it.
    #[serde(default)]
    pub because: String,
}

impl Advice {
    pub(crate) fn check(&self, claims: &[Claim]) -> Result<(), String> {
        match &self.claim {
            Some(key) if !claims.iter().any(|claim| claim.key == *key) => {
                Err(format!("there is no claim {key:?}"))
            }
            Some(_) if !self.because.is_empty() => {
                Err("`because` is for advice without a `claim`".to_owned())
            }
            None if self.because.trim().is_empty() => {
                Err("it needs a `claim`, or `because` with the reason why it has none".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The claim in words, or why there is none.
    #[must_use]
    pub fn borne_by<'a>(&'a self, claims: &'a [Claim]) -> &'a str {
        let of_key = |claim: &&Claim| Some(&claim.key) == self.claim.as_ref();
        claims.iter().find(of_key).map_or(&self.because, |claim| &claim.says)
    }
}
