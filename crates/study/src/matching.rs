//! Which points of ours a published value stands beside.

use rdmalab_record::Object;

use crate::measurement::matches_operand;
use crate::value::Value;

impl Value {
    /// Whether a point with these parameters is one that the value stands beside. What follows from
    /// several numbers, or is a share or a finding, is no number of a point.
    #[must_use]
    pub fn fits(&self, parameters: &Object) -> bool {
        self.ours.above.is_none() && self.is_of_point(parameters)
    }

    /// Whether it is a share of the samples of a point with these parameters: of those above
    /// [`Operand::above`](crate::Operand::above).
    #[must_use]
    pub fn is_share_of(&self, parameters: &Object) -> bool {
        self.ours.above.is_some() && self.is_of_point(parameters)
    }

    fn is_of_point(&self, parameters: &Object) -> bool {
        let is_plain = self.over.is_none() && self.less.is_none();
        is_plain && self.ours.finding.is_none() && matches_operand(parameters, &self.ours, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_stands_beside_what_has_all_that_it_names() {
        let ours = "metric='m'\nours={figure='f', where={poll='busy', size_bytes=8}}";
        let value: Value = toml::from_str(ours).unwrap();
        let fits = |parameters: serde_json::Value| value.fits(parameters.as_object().unwrap());
        let both = json!({ "size_bytes": 8, "poll_send": "busy", "poll_recv": "busy", "x": 1 });
        assert!(fits(both));
        assert!(!fits(json!({ "size_bytes": 8, "poll_send": "busy", "poll_recv": "event" })));
        assert!(!fits(json!({ "size_bytes": 64, "poll_send": "busy", "poll_recv": "busy" })));
        assert!(!fits(json!({ "size_bytes": 8 })));
        let one = json!({ "size_bytes": 8 });
        for (rest, fits) in [("", true), ("over={}", false), ("less={}", false)] {
            let text = format!("metric='m'\nours={{figure='f', where={{size_bytes=8}}}}\n{rest}");
            let value: Value = toml::from_str(&text).unwrap();
            assert_eq!(value.fits(one.as_object().unwrap()), fits, "{rest}");
        }
        let found: Value = toml::from_str("metric='m'\nours={finding='knee'}").unwrap();
        assert!(!found.fits(one.as_object().unwrap()));
        assert!(!value.is_share_of(one.as_object().unwrap()));
    }

    #[test]
    fn a_share_is_of_its_point_and_is_no_number_of_it() {
        let ours = "metric='m'\nours={quantity='q', above=600, where={size_bytes=8}}";
        let value: Value = toml::from_str(ours).unwrap();
        let (own, other) = (json!({ "size_bytes": 8 }), json!({ "size_bytes": 64 }));
        assert!(value.is_share_of(own.as_object().unwrap()));
        assert!(!value.is_share_of(other.as_object().unwrap()));
        assert!(!value.fits(own.as_object().unwrap()));
    }
}
