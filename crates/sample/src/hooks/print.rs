//! `print`: samples as text.

use serde::{Deserialize, Serialize};

use crate::format::{Form, Format};
use crate::formats::{FormatKey, FormatOptions, villas_human};
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
        let format = FormatOptions::VillasHuman(villas_human::Options::default());
        Self { output: None, format: FormatKey(format), prefix: String::new() }
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
    /// If an option of the format is out of its range.
    pub fn new(options: Options, signals: &[Signal]) -> Result<Self, OptionError> {
        Ok(Self {
            format: options.format.0.build()?,
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
        let sample = &[sample.as_ref()];
        let encode = |form: Form, out: &mut Vec<u8>| {
            let encoded = self.format.encode(form, &self.signals, sample, out);
            encoded.map_err(|_| HookError::new("the format of `print` cannot write the sample"))
        };
        let form = std::mem::replace(&mut self.form, Form::File);
        let mut start = self.text.len();
        encode(form, &mut self.text)?;
        if form == Form::FileStart {
            // The prefix belongs before the sample, not before the header of a file.
            let mut sample = Vec::new();
            encode(Form::File, &mut sample)?;
            start = self.text.len() - sample.len();
        }
        self.text.splice(start..start, self.prefix.bytes());
        Ok(Verdict::Pass)
    }

    fn take_text(&mut self, _: bool) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }
}
