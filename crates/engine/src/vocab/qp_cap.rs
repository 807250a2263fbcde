//! The capacities of queue pairs.

/// Capacities of a queue pair (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Send WQEs.
    pub max_send_wr: u32,
    /// Receive WQEs.
    pub max_recv_wr: u32,
    /// Scatter/gather elements of a send WQE.
    pub max_send_sge: u32,
    /// Scatter/gather elements of a receive WQE.
    pub max_recv_sge: u32,
    /// Bytes that can be sent inline.
    pub max_inline_data: u32,
}

impl QpCap {
    /// The capacities that a queue pair gets which asks for these: at least one request of one
    /// piece, and no receives of its own if it uses a shared receive queue.
    ///
    /// # Errors
    /// The first capacity that is above that of `most`: its name, its value and the limit.
    pub fn grant(
        self,
        most: &QpCap,
        own_receives: bool,
    ) -> Result<QpCap, (&'static str, u32, u32)> {
        for (what, asked, limit) in [
            ("max_send_wr", self.max_send_wr, most.max_send_wr),
            ("max_recv_wr", self.max_recv_wr, most.max_recv_wr),
            ("max_send_sge", self.max_send_sge, most.max_send_sge),
            ("max_recv_sge", self.max_recv_sge, most.max_recv_sge),
            ("max_inline_data", self.max_inline_data, most.max_inline_data),
        ] {
            if asked > limit {
                return Err((what, asked, limit));
            }
        }
        Ok(QpCap {
            max_send_wr: self.max_send_wr.max(1),
            max_recv_wr: if own_receives { self.max_recv_wr.max(1) } else { 0 },
            max_send_sge: self.max_send_sge.max(1),
            max_recv_sge: if own_receives { self.max_recv_sge.max(1) } else { 0 },
            max_inline_data: self.max_inline_data,
        })
    }
}
