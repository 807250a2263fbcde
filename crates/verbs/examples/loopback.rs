//! A verbs program: two queue pairs of one process, connected to each other. The first one WRITEs
//! into the memory of the second one, and then SENDs a message.
//!
//! ```sh
//! rdmalab exec -- cargo run -p rdmalab-verbs --example loopback    # on the soft device
//! cargo run -p rdmalab-verbs --example loopback                    # on an adapter
//! ```

use std::error::Error;

use rdmalab_verbs::{
    Access, Context, Cq, Library, Mr, Path, Qp, QpType, ReadyToReceive, ReadyToSend, RecvRequest,
    SendRequest, Wc,
};

const BUFFER_BYTES: usize = 4096;
/// The first packet sequence number of both directions. Any number of 24 bits will do.
const FIRST_PSN: u32 = 7;

/// A queue pair, its completion queue, and memory that the other side may write to.
struct Side {
    qp: Qp,
    cq: Cq,
    mr: Mr,
}

fn open_side(context: &Context, path: &Path) -> Result<Side, Box<dyn Error>> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16, None)?;
    let buffer = context.alloc_buffer(BUFFER_BYTES)?;
    let mr = pd.register(&buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let qp = Qp::builder(QpType::Rc, &cq, &cq).max_send_wr(8).max_recv_wr(8).build(&pd)?;
    // RESET to INIT: from here on receives can be posted.
    qp.to_init(path.port_num, Access::REMOTE_WRITE, 0)?;
    Ok(Side { qp, cq, mr })
}

/// Polls until a work request has completed. An error of it is an error of ours.
fn wait(cq: &Cq) -> Result<Wc, Box<dyn Error>> {
    loop {
        if let Some(completion) = cq.poll_one()? {
            completion.status().map_err(|status| format!("completed with {status:?}"))?;
            return Ok(completion);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let devices = Library::system()?.devices()?;
    let device = devices.first().ok_or("there is no RDMA device: try `rdmalab exec -- ...`")?;
    let context = device.open()?;
    let port = context.query_port(1)?;
    // Ethernet ports are addressed by GID, InfiniBand ports by LID.
    let path = if port.needs_gid() { Path::by_gid(1, 0) } else { Path::by_lid(1) };

    let (a, b) = (open_side(&context, &path)?, open_side(&context, &path)?);
    // What each side has to know of the other one. Between hosts it is sent over TCP.
    let (of_a, of_b) = (a.qp.endpoint(&path, FIRST_PSN)?, b.qp.endpoint(&path, FIRST_PSN)?);
    for (side, peer) in [(&a, of_b), (&b, of_a)] {
        side.qp.to_rtr(&ReadyToReceive::new(peer, path, port.active_mtu))?;
        side.qp.to_rts(&ReadyToSend::new(FIRST_PSN))?;
    }

    // RDMA WRITE: only the initiator learns that it is done.
    a.mr.buffer().copy_in(0, b"written");
    let sges = [a.mr.sge(0, 7)];
    a.qp.post_send(&[SendRequest::write(&sges, &b.mr.remote(), 64).wr_id(1).signaled()])?;
    wait(&a.cq)?;
    let mut bytes = [0; 7];
    b.mr.buffer().read_bytes(64, &mut bytes);
    println!("WRITE: b has {:?}", String::from_utf8_lossy(&bytes));

    // SEND: the receiver posts memory first, and learns of the message by a completion.
    b.qp.post_recv(&[RecvRequest::new(&[b.mr.sge(0, 64)]).wr_id(2)])?;
    a.mr.buffer().copy_in(0, b"a message");
    a.qp.post_send(&[SendRequest::send(&[a.mr.sge(0, 9)]).wr_id(3).signaled()])?;
    wait(&a.cq)?;
    let received = wait(&b.cq)?;
    let mut bytes = vec![0; received.byte_len() as usize];
    b.mr.buffer().read_bytes(0, &mut bytes);
    println!("SEND: b received {:?}", String::from_utf8_lossy(&bytes));
    Ok(())
}
