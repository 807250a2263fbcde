//! Which points of ours a published value stands beside.

use rdmalab_record::Object;

use crate::claim::Value;
use crate::find::is_meant;

impl Value {
    /// Whether a point with these parameters is one that the value stands beside.
    #[must_use]
    pub fn fits(&self, parameters: &Object) -> bool {
        is_meant(parameters, &self.ours, None)
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
    }
}
