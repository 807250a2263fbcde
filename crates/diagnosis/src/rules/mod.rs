//! The rules, one file each, and the list of them.

pub mod client_fault;
pub mod cm_reject;
pub mod cm_timeout;
pub mod damming;
pub mod duplicates;
pub mod exhausted;
pub mod flood;
pub mod head_of_line;
pub mod length;
pub mod lost;
pub mod missing_receive;
pub mod mtu;
pub mod psn;
pub mod rd_atomic;
pub mod refused;
pub mod rnr_storm;
pub mod server_fault;
pub mod timeout;

use crate::rule::Rule;

/// All rules, the most special first, since the first one that explains an event has it.
pub fn all() -> Vec<Box<dyn Rule>> {
    vec![
        Box::new(psn::PsnError),
        Box::new(refused::AccessError),
        Box::new(length::LengthError),
        Box::new(damming::Damming::default()),
        Box::new(flood::Flood::default()),
        Box::new(mtu::Mtu::default()),
        Box::new(exhausted::Exhausted::default()),
        Box::new(rnr_storm::RnrStorm),
        Box::new(server_fault::ServerFault),
        Box::new(missing_receive::MissingReceive),
        Box::new(client_fault::ClientFault),
        Box::new(lost::Lost),
        Box::new(duplicates::Duplicates::default()),
        Box::new(timeout::Timeout),
        Box::new(cm_timeout::CmTimeout::default()),
        Box::new(cm_reject::CmReject),
        Box::new(rd_atomic::SmallRdAtomic::default()),
        Box::new(head_of_line::HeadOfLine),
    ]
}
