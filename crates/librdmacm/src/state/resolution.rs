//! Turns results of `rdma_resolve_addr` into events for the program.

use std::net::SocketAddr;

use rdmalab_abi::{RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED};

use super::{CmState, service_of};
use crate::errno::{CallResult, Errno, failed};
use crate::event_queue::QueuedEvent;
use crate::lookups::Path;
use crate::mad_transport::Peer;

impl CmState {
    /// Stores the path and queues the event, or queues the error.
    ///
    /// # Errors
    /// `EINVAL` for an id that is gone.
    pub fn finish_resolution(
        &mut self,
        id: u64,
        destination: SocketAddr,
        found: CallResult<Path>,
    ) -> CallResult<()> {
        let (event, status) = match found {
            Ok(path) => {
                self.store_path(id, destination, path)?;
                (RDMA_CM_EVENT_ADDR_RESOLVED, 0)
            }
            Err(Errno(errno)) => (RDMA_CM_EVENT_ADDR_ERROR, -errno),
        };
        self.queue_event(QueuedEvent { status, ..QueuedEvent::new(event, id) });
        Ok(())
    }

    fn store_path(&mut self, number: u64, destination: SocketAddr, path: Path) -> CallResult<()> {
        let free_port = self.next_port();
        let state = self.id(number)?;
        let port = state.source.map_or(free_port, |source| source.port());
        state.source = Some(SocketAddr::new(path.source, port));
        state.destination = Some(destination);
        state.device = Some(path.device);
        state.params.sgid_index = path.sgid_index;
        state.params.local_gid = path.local_gid;
        state.params.remote_gid = path.remote_gid;
        state.params.remote_lid = path.remote_lid;
        state.peer = Some(match path.is_local {
            true => Peer::Service(service_of(state.ps, destination.port())),
            false => Peer::Remote { local: path.local_gid, remote: path.remote_gid },
        });
        Ok(())
    }

    /// Reports a time-out to the requests whose deadline has passed.
    pub fn expire_lookups(&mut self, now_ns: u64) {
        for request in self.lookups.take_expired(now_ns) {
            let error = failed(libc::ETIMEDOUT, "rdma_resolve_addr", || {
                let ip = request.path.remote_gid.to_ip();
                format!(
                    "no host answered for {ip} within the time-out: is that host up, on this link, \
                     and the address right? (ip neighbour show)"
                )
            });
            // The id may be gone.
            let _gone = self.finish_resolution(request.id, request.destination, Err(error));
        }
    }
}
