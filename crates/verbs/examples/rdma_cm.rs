//! A connection made by rdma_cm, as with `rdma_connect` and `rdma_accept` in C: a server and a
//! client, here in two threads. The connection manager finds the device by an IP address, and takes
//! the queue pairs through their states.
//!
//! ```sh
//! rdmalab exec -- cargo run -p rdmalab-verbs --example rdma_cm    # on the soft device
//! ```

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdmalab_verbs::{
    Access, CmAddress, CmChannel, CmEvent, CmEventKind, CmId, ConnParam, ConnectionManager, Cq,
    Library, Mr, Qp, QpType, RecvRequest, SendRequest, Wc,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const LIMIT: Duration = Duration::from_secs(10);
const RESOLVE_MS: u32 = 2000;

/// The next event, which has to be this one.
fn expect(channel: &CmChannel, kind: CmEventKind) -> Result<CmEvent> {
    let event = channel.wait(LIMIT)?.ok_or_else(|| format!("no {kind:?} within {LIMIT:?}"))?;
    if event.kind == kind {
        Ok(event)
    } else {
        Err(format!("{:?}, not {kind:?}", event.kind).into())
    }
}

/// A queue pair on an id that leads to a device. `rdma_create_qp` takes it to INIT.
fn queue_pair(id: &CmId) -> Result<(Qp, Cq, Mr)> {
    let context = id.context().ok_or("the id leads to no device")?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(8, None)?;
    let mr = pd.register(&context.alloc_buffer(4096)?, Access::LOCAL_WRITE)?;
    let qp = Qp::builder(QpType::Rc, &cq, &cq).max_send_wr(4).max_recv_wr(4).build_on(id, &pd)?;
    Ok((qp, cq, mr))
}

fn wait(cq: &Cq) -> Result<Wc> {
    loop {
        if let Some(completion) = cq.poll_one()? {
            completion.status().map_err(|status| format!("completed with {status:?}"))?;
            return Ok(completion);
        }
    }
}

fn server(manager: &ConnectionManager, port: &mpsc::Sender<u16>) -> Result<()> {
    let channel = manager.create_channel()?;
    let listener = channel.create_id()?;
    listener.bind(&CmAddress::loopback())?;
    listener.listen(1)?;
    port.send(listener.port())?;
    let request = expect(&channel, CmEventKind::ConnectRequest)?;
    let id = request.request.ok_or("a request brings an id")?;
    let (qp, cq, mr) = queue_pair(&id)?;
    // The receive has to be there before the client may send: before the connection is accepted.
    qp.post_recv(&[RecvRequest::new(&[mr.sge(0, 64)])])?;
    id.accept(&ConnParam::default())?;
    expect(&channel, CmEventKind::Established)?;
    let received = wait(&cq)?;
    let mut bytes = vec![0; received.byte_len() as usize];
    mr.buffer().read_bytes(0, &mut bytes);
    println!("the server received {:?}", String::from_utf8_lossy(&bytes));
    expect(&channel, CmEventKind::Disconnected)?;
    Ok(())
}

fn client(manager: &ConnectionManager, port: u16) -> Result<()> {
    let channel = manager.create_channel()?;
    let id = channel.create_id()?;
    id.resolve_address(&CmAddress::loopback().with_port(port), RESOLVE_MS)?;
    expect(&channel, CmEventKind::AddressResolved)?;
    id.resolve_route(RESOLVE_MS)?;
    expect(&channel, CmEventKind::RouteResolved)?;
    let (qp, cq, mr) = queue_pair(&id)?;
    id.connect(&ConnParam::default())?;
    expect(&channel, CmEventKind::Established)?;
    mr.buffer().copy_in(0, b"hello");
    qp.post_send(&[SendRequest::send(&[mr.sge(0, 5)]).signaled()])?;
    wait(&cq)?;
    id.disconnect()?;
    Ok(())
}

fn main() -> Result<()> {
    let manager = Library::system()?.connection_manager()?;
    let (port, its_port) = mpsc::channel();
    thread::scope(|scope| {
        let server = scope.spawn(|| server(&manager, &port));
        client(&manager, its_port.recv_timeout(LIMIT)?)?;
        server.join().map_err(|_| "the server panicked")?
    })
}
