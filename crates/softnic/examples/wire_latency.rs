//! The round trip of a small SEND between two hosts, compared with that of plain UDP datagrams
//! between the same hosts, in turns: this is what RDMA adds to UDP. Both ends spin.
//!
//! ```sh
//! cargo build --release -p rdmalab-softnic --example wire_latency
//! RDMALAB_INTERFACE=eth0 wire_latency              # on one host
//! RDMALAB_INTERFACE=eth0 wire_latency 192.0.2.7 [ROUNDS [BYTES [EACH]]]   # on the other
//! ```
//!
//! One SEND in EACH (16) is signaled, and its sender waits for the acknowledgement.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use rdmalab_wire::ids::Gid;

type Qp = <SoftNic as Backend>::Qp;
type Cq = <SoftNic as Backend>::Cq;

const PORT: u16 = 18_516;
const TRIPS: usize = 2000;
const MAX_BYTES: usize = 1024;

/// One end of a connection.
struct Endpoint {
    qp: Qp,
    cq: Cq,
    addr: u64,
    lkey: u32,
    bytes: u32,
}

fn number<const N: usize>(stream: &mut TcpStream, ours: [u8; N]) -> std::io::Result<[u8; N]> {
    stream.write_all(&ours)?;
    let mut theirs = [0; N];
    stream.read_exact(&mut theirs)?;
    Ok(theirs)
}

/// The index of the GID for an address.
fn gid_index(context: &<SoftNic as Backend>::Context, own: IpAddr) -> Result<u8, Box<dyn Error>> {
    for index in 0..=u8::MAX {
        let entry = SoftNic::query_gid(context, 1, u32::from(index))?;
        if rdmalab_link::address::address_of(entry.gid) == own {
            return Ok(index);
        }
    }
    Err("no such GID".into())
}

fn connect(stream: &mut TcpStream, bytes: u32) -> Result<Endpoint, Box<dyn Error>> {
    let context = SoftNic.open(0)?;
    let pd = SoftNic::alloc_pd(&context)?;
    let memory: &'static mut [u8] = Box::leak(vec![0u8; 2 * MAX_BYTES].into_boxed_slice());
    let addr = memory.as_mut_ptr() as u64;
    let length = memory.len() as u64;
    let (region, keys) = SoftNic::reg_mr(&pd, addr, length, addr, Access::LOCAL_WRITE)?;
    std::mem::forget(region);
    let (timestamps, ignore_overrun) = (false, false);
    let init = CqInit { cqe: 256, channel: None, timestamps, ignore_overrun, cookie: 1 };
    let (cq, _) = SoftNic::create_cq(&context, init)?;
    let cap = QpCap {
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 256,
    };
    let (send_cq, recv_cq) = (&cq, &cq);
    let (qp_type, srq, sq_sig_all, cookie) = (QpType::Rc, None, false, 2);
    let init = QpInit { qp_type, send_cq, recv_cq, srq, cap, sq_sig_all, cookie };
    let (qp, qpn, _) = SoftNic::create_qp(&pd, init)?;
    let sgid_index = gid_index(&context, stream.local_addr()?.ip().to_canonical())?;
    let theirs = u32::from_be_bytes(number(stream, qpn.get().to_be_bytes())?);
    let dgid = rdmalab_link::address::gid_of(stream.peer_addr()?.ip().to_canonical());
    let mtu = SoftNic::query_port(&context, 1)?.active_mtu;
    ready(&qp, theirs, dgid, sgid_index, mtu)?;
    number(stream, [1])?;
    Ok(Endpoint { qp, cq, addr, lkey: keys.lkey, bytes })
}

fn ready(qp: &Qp, remote: u32, dgid: Gid, sgid_index: u8, mtu: u32) -> VerbsResult<()> {
    let mut attr = QpAttr { qp_state: QpState::Init, port_num: 1, ..QpAttr::default() };
    let mask = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
    SoftNic::modify_qp(qp, &attr, mask | QpAttrMask::ACCESS_FLAGS)?;
    attr.qp_state = QpState::Rtr;
    attr.path_mtu = mtu;
    attr.dest_qp_num = remote;
    attr.min_rnr_timer = 1;
    attr.ah_attr = AhAttr { dgid, sgid_index, is_global: true, port_num: 1, ..AhAttr::default() };
    let rtr = QpAttrMask::STATE | QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN;
    let rtr = rtr | QpAttrMask::RQ_PSN | QpAttrMask::MAX_DEST_RD_ATOMIC;
    SoftNic::modify_qp(qp, &attr, rtr | QpAttrMask::MIN_RNR_TIMER)?;
    attr.qp_state = QpState::Rts;
    (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 7);
    let rts = QpAttrMask::STATE | QpAttrMask::TIMEOUT | QpAttrMask::RETRY_CNT;
    let rts = rts | QpAttrMask::RNR_RETRY | QpAttrMask::SQ_PSN | QpAttrMask::MAX_QP_RD_ATOMIC;
    SoftNic::modify_qp(qp, &attr, rts).map(drop)
}

impl Endpoint {
    fn receive_next(&self) -> Result<(), Box<dyn Error>> {
        let addr = self.addr + MAX_BYTES as u64;
        let sges = [Sge { addr, length: self.bytes, lkey: self.lkey }];
        let wr = RecvWr { wr_id: 1, sges: &sges };
        SoftNic::post_recv(&self.qp, [wr].into_iter()).map_err(|(_, e)| format!("{e:?}").into())
    }

    fn send(&self, signaled: bool) -> Result<(), Box<dyn Error>> {
        let sges = [Sge { addr: self.addr, length: self.bytes, lkey: self.lkey }];
        let wr = SendWr {
            wr_id: 2,
            opcode: WrOpcode::Send,
            flags: if signaled { SendFlags::SIGNALED } else { SendFlags::NONE },
            imm_or_rkey: 0,
            sges: &sges,
            remote_addr: 0,
            rkey: 0,
            compare_add: 0,
            swap: 0,
            ud: None,
            bind: None,
        };
        SoftNic::post_send(&self.qp, [wr].into_iter()).map_err(|(_, e)| format!("{e:?}").into())
    }

    /// Spins until a message has arrived.
    fn wait(&self) -> Result<(), Box<dyn Error>> {
        let mut out = [MaybeUninit::<Wc>::uninit(); 4];
        loop {
            let got = SoftNic::poll_cq(&self.cq, &mut out)?;
            let mut came = false;
            for wc in &out[..got] {
                // SAFETY: polling initialised the completions that it counted.
                let wc = unsafe { wc.assume_init() };
                if wc.status != WcStatus::Success {
                    return Err(format!("{:?}", wc.status).into());
                }
                came |= wc.opcode == WcOpcode::Recv;
            }
            if came {
                return Ok(());
            }
        }
    }

    fn trip(&self, first: bool, signaled: bool) -> Result<(), Box<dyn Error>> {
        self.receive_next()?;
        if first {
            self.send(signaled)?;
            return self.wait();
        }
        self.wait()?;
        self.send(signaled)
    }
}

/// One round trip of plain datagrams.
fn bare_trip(socket: &UdpSocket, to: SocketAddr, bytes: usize, first: bool) -> std::io::Result<()> {
    let mut buffer = [0u8; MAX_BYTES];
    if first {
        socket.send_to(&buffer[..bytes], to)?;
    }
    loop {
        match socket.recv_from(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            other => {
                other?;
                break;
            }
        }
    }
    if !first {
        socket.send_to(&buffer[..bytes], to)?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next();
    let rounds: u32 = arguments.next().map_or(Ok(21), |word| word.parse())?;
    let bytes: u32 = arguments.next().map_or(Ok(32), |word| word.parse())?;
    let each: u32 = arguments.next().map_or(Ok(16), |word| word.parse())?;
    let first = server.is_some();
    let mut stream = match server {
        Some(host) => TcpStream::connect((host.as_str(), PORT))?,
        None => TcpListener::bind(("::", PORT))?.accept()?.0,
    };
    // Both ends use the client's numbers.
    let ours = [rounds.to_be_bytes(), bytes.to_be_bytes(), each.to_be_bytes()].concat();
    let words = number(&mut stream, ours.try_into().unwrap_or([0; 12]))?;
    let theirs = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| words[at + i]));
    let chosen = if first { (rounds, bytes, each) } else { (theirs(0), theirs(4), theirs(8)) };
    let (rounds, bytes, each) = chosen;
    let each = each.max(1) as usize;
    let socket = UdpSocket::bind((stream.local_addr()?.ip(), 0))?;
    socket.set_nonblocking(true)?;
    let port = u16::from_be_bytes(number(&mut stream, socket.local_addr()?.port().to_be_bytes())?);
    let to = SocketAddr::new(stream.peer_addr()?.ip(), port);
    let end = connect(&mut stream, bytes.min(MAX_BYTES as u32))?;
    let (mut bare_ns, mut rdma_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut medians = [0.0; 2];
        for (kind, median_ns) in medians.iter_mut().enumerate() {
            number(&mut stream, [2])?;
            let mut trips = Vec::with_capacity(TRIPS);
            for trip in 0..TRIPS {
                let start = Instant::now();
                match kind {
                    0 => bare_trip(&socket, to, bytes as usize, first)?,
                    _ => end.trip(first, trip % each == each - 1)?,
                }
                trips.push(start.elapsed().as_nanos() as f64);
            }
            *median_ns = median(trips);
        }
        bare_ns.push(medians[0]);
        rdma_ns.push(medians[1]);
        ratios.push(medians[1] / medians[0]);
    }
    if first {
        let (bare_us, rdma_us) = (median(bare_ns) / 1000.0, median(rdma_ns) / 1000.0);
        println!("{bytes} B round trip: bare {bare_us:.2} us, RC SEND {rdma_us:.2} us");
        println!("ratio of pairs: {:.2} (median of {rounds})", median(ratios));
    }
    Ok(())
}
