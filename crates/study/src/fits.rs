//! Which points of ours a published value stands beside.

use rdmalab_record::Object;

use crate::find::is_meant;
use crate::value::Value;

impl Value {
    /// Whether a point with these parameters is one that the value stands beside. What follows from
    /// several numbers, or is a share or a finding, is no number of a point.
    #[must_use]
    pub fn fits(&self, parameters: &Object) -> bool {
        let is_plain = self.over.is_none() && self.less.is_none();
        let of_point = self.ours.finding.is_none() && self.ours.above.is_none();
        is_plain && of_point && is_meant(parameters, &self.ours, None)
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
    }
}
