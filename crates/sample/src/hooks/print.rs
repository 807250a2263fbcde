//! `print`: samples as text.

use serde::{Deserialize, Serialize};

use crate::format::{Form, Format};
use crate::formats::FormatKey;
use crate::hook::{Hook, HookError, Verdict};
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::signal::Signal;
use crate::timestamp::Timestamp;

/// The options of `print`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The file to which the text goes; standard output if not given. The caller opens it.
    pub output: Option<String>,
    /// The format of the text.
    pub format: FormatKey,
    /// What stands before each sample.
    pub prefix: String,
}

impl Default for Options {
    fn default() -> Self {
        let format = FormatKey::Name("villas.human".to_owned());
        Self { output: None, format, prefix: String::new() }
    }
}

/// `print`: writes each sample as text.
pub struct Print {
    format: Box<dyn Format>,
    prefix: String,
    signals: Vec<Signal>,
    form: Form,
    text: Vec<u8>,
}

impl Print {
    /// The hook with these options for samples of `signals`.
    ///
    /// # Errors
    /// If there is no such format.
    pub fn new(options: Options, signals: &[Signal]) -> Result<Self, OptionError> {
        Ok(Self {
            format: options.format.build()?,
            prefix: options.prefix,
            signals: signals.to_vec(),
            form: if options.output.is_some() { Form::FileStart } else { Form::File },
            text: Vec::new(),
        })
    }
}

impl Hook for Print {
    fn name(&self) -> &'static str {
        "print"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let sample = sample.as_ref();
        let form = std::mem::replace(&mut self.form, Form::File);
        self.text.extend_from_slice(self.prefix.as_bytes());
        self.format
            .encode(form, &self.signals, &[sample], &mut self.text)
            .map_err(|_| HookError::new("the format of `print` cannot represent the sample"))?;
        Ok(Verdict::Pass)
    }

    fn take_text(&mut self, _: bool) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }
}
