//! Models, devices and connected ends for the tests of the simulator.

use std::sync::Arc;

use rdmalab_experiments::{Experiment, Point, sweep};
use rdmalab_measure::Outcome;
use rdmalab_provider::table::instance_table;
use rdmalab_provider::{Devices, diag, exports};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_sim::{Parameters, Profile, SimBackend, SimRank, Simulation, find};
use rdmalab_verbs::{
    Access, AddressHandle, Buffer, Context, Cq, Device, Instance, Kind, Library, Mr, Path, Pd, Qp,
    QpEndpoint, QpType, ReadyToReceive, ReadyToSend, RemoteBuffer, SendRequest, Srq, Wc,
};

/// Options of a point.
pub type Options = &'static [(&'static str, &'static str)];

/// An experiment, its ranks, and options.
pub type Case = (Experiment, usize, Options);

/// The `ideal` profile with every parameter at its least value, but for these.
pub fn model(changes: &[(&str, f64)]) -> Profile {
    let mut profile = find("ideal").unwrap();
    profile.parameters = Parameters::least();
    let usual = [("mtu_bytes", 4096.0), ("max_inline_bytes", 1024.0), ("max_wr", 16384.0)];
    let more = [("max_sge", 32.0), ("max_rd_atomic", 16.0)];
    for (name, value) in usual.iter().chain(&more).chain(changes) {
        profile.set(name, *value).unwrap();
    }
    profile
}

/// A simulation and its device.
pub fn lab(profile: &Profile, ranks: usize) -> (Simulation, Device) {
    let simulation = Simulation::new(profile, ranks, Arc::default());
    let device = device_of(&simulation);
    (simulation, device)
}

/// The device of a simulation.
pub fn device_of(simulation: &Simulation) -> Device {
    let devices = Devices::new(simulation.backend());
    let instance = Instance {
        devices: Box::new(move || devices.list()),
        wait_event: exports::wait_cq_event::<SimBackend>,
        wait_async_event: exports::wait_async_event::<SimBackend>,
        last_error: diag::last_error,
    };
    let library = Library::of_instance(instance_table::<SimBackend>(), Kind::Sim, instance);
    library.devices().unwrap().remove(0)
}

/// The result of each rank of an experiment.
pub fn measured(
    profile: &Profile,
    ranks: usize,
    experiment: Experiment,
    options: &[(&str, &str)],
) -> Vec<Result<Outcome, Stopped>> {
    let points = sweep(experiment, options).unwrap();
    assert_eq!(points.len(), 1, "one point");
    run_point(profile, ranks, &points[0])
}

/// The result of each rank of a point.
pub fn run_point(profile: &Profile, ranks: usize, point: &Point) -> Vec<Result<Outcome, Stopped>> {
    run_point_on(profile, ranks, point, |simulation| simulation)
}

/// The result of each rank of a point, in a simulation that differs from the usual one.
pub fn run_point_on(
    profile: &Profile,
    ranks: usize,
    point: &Point,
    change: impl FnOnce(Simulation) -> Simulation,
) -> Vec<Result<Outcome, Stopped>> {
    let (simulation, device) = lab(profile, ranks);
    let simulation = change(simulation.with_seed(point.common.stream_seed()));
    simulation.run(|rank| rdmalab_experiments::run(rank, &device, point)).0
}

/// The results of rank 0.
pub fn outcome(
    profile: &Profile,
    ranks: usize,
    experiment: Experiment,
    options: &[(&str, &str)],
) -> Outcome {
    let mut all = measured(profile, ranks, experiment, options);
    all.drain(..).next().unwrap().unwrap_or_else(|why| panic!("{experiment} {options:?}: {why}"))
}

/// The Q_Key of all queue pairs.
pub const QKEY: u32 = 7;

/// One end of a connection between two ranks.
pub struct Endpoint {
    pub pd: Pd,
    pub qp: Qp,
    pub send_cq: Cq,
    pub recv_cq: Cq,
    pub mr: Mr,
    pub peer: RemoteBuffer,
    /// Where datagrams go.
    pub to: Option<(AddressHandle, u32)>,
}

impl Endpoint {
    /// The request with the address of the other end, if it is a datagram.
    pub fn addressed<'s, 'm>(&'m self, request: SendRequest<'s, 'm>) -> SendRequest<'s, 'm> {
        match &self.to {
            Some((ah, qpn)) => request.to(ah, *qpn, QKEY),
            None => request,
        }
    }
}

/// What an end is made of.
#[derive(Clone, Copy)]
pub struct Shape {
    pub qp_type: QpType,
    pub bytes: usize,
    pub inline: u32,
    pub depth: u32,
    pub max_sge: u32,
    /// Whether the memory of this rank is paged on demand.
    pub on_demand: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            qp_type: QpType::Rc,
            bytes: 1 << 16,
            inline: 64,
            depth: 64,
            max_sge: 1,
            on_demand: false,
        }
    }
}

/// Connects a queue pair of this rank to one of the other rank; both call it.
pub fn connect(rank: &SimRank, device: &Device, shape: Shape) -> Endpoint {
    connect_to(rank, device, shape, 1 - rank.index())
}

/// Connects a queue pair of this rank to one of rank `other`; all ranks call it.
pub fn connect_to(rank: &SimRank, device: &Device, shape: Shape, other: usize) -> Endpoint {
    Host::new(device, shape, false).connect(rank, shape, other)
}

/// What queue pairs of a rank share.
pub struct Host {
    context: Context,
    pd: Pd,
    send_cq: Cq,
    recv_cq: Cq,
    mr: Mr,
    pub srq: Option<Srq>,
}

impl Host {
    /// Completion queues, memory, and a shared receive queue if it is wanted.
    pub fn new(device: &Device, shape: Shape, has_srq: bool) -> Host {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = || context.create_cq(4 * shape.depth, None).unwrap();
        let (send_cq, recv_cq) = (cq(), cq());
        let paging = if shape.on_demand { Access::ON_DEMAND } else { Access::LOCAL_WRITE };
        let mr = pd.register(&Buffer::private(shape.bytes).unwrap(), rights() | paging).unwrap();
        let srq = has_srq.then(|| pd.create_srq(shape.depth, shape.max_sge).unwrap());
        Host { context, pd, send_cq, recv_cq, mr, srq }
    }

    /// Connects a queue pair to one of rank `other`; all ranks call it.
    pub fn connect(&self, rank: &SimRank, shape: Shape, other: usize) -> Endpoint {
        let builder = Qp::builder(shape.qp_type, &self.send_cq, &self.recv_cq)
            .max_send_wr(shape.depth)
            .max_recv_wr(shape.depth)
            .max_sge(1, shape.max_sge)
            .max_inline_data(shape.inline);
        let qp = match &self.srq {
            Some(srq) => builder.srq(srq).build(&self.pd).unwrap(),
            None => builder.build(&self.pd).unwrap(),
        };
        let path = Path::by_lid(1);
        qp.to_init(1, rights(), QKEY).unwrap();
        let own = qp.endpoint(&path, 100 + rank.index() as u32).unwrap();
        let remote = self.mr.remote();
        let text = format!("{own} {} {} {}", remote.addr, remote.bytes, remote.rkey);
        let all = rank.exchange(text.as_bytes()).unwrap();
        let theirs = String::from_utf8(all[other].clone()).unwrap();
        let mut words = theirs.split(' ');
        let endpoint: QpEndpoint = words.next().unwrap().parse().unwrap();
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let peer = RemoteBuffer { addr: number(), bytes: number(), rkey: number() as u32 };
        let mtu = self.context.query_port(1).unwrap().active_mtu;
        let to =
            ReadyToReceive { max_dest_rd_atomic: 8, ..ReadyToReceive::new(endpoint, path, mtu) };
        qp.to_rtr(&to).unwrap();
        let is_datagram = shape.qp_type == QpType::Ud;
        let to = is_datagram.then(|| (self.pd.create_ah(&endpoint, &path).unwrap(), endpoint.qpn));
        let psn = 100 + rank.index() as u32;
        qp.to_rts(&ReadyToSend { max_rd_atomic: 8, ..ReadyToSend::new(psn) }).unwrap();
        rank.barrier().unwrap();
        let (send_cq, recv_cq) = (self.send_cq.clone(), self.recv_cq.clone());
        Endpoint { pd: self.pd.clone(), qp, send_cq, recv_cq, mr: self.mr.clone(), peer, to }
    }
}

fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Spins until a completion queue has a completion, which must be a success.
pub fn wait(rank: &SimRank, cq: &Cq) -> Wc {
    let wc = rank.spin(|| cq.poll_one().unwrap()).unwrap();
    assert!(wc.is_ok(), "{wc:?}");
    wc
}
