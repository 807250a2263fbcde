//! Objects of simulated devices: asynchronous events, and what waits for DMA before it goes.

use std::time::Duration;

use rdmalab_rank::Rank;
use rdmalab_verbs::{Access, AsyncEvent, Buffer, RecvRequest, RemoteBuffer, SendRequest};

use crate::lab::{Shape, connect, lab, model, wait};

const ACCESS_ERROR: &str = "a queue pair received a request without the rights";

/// Waits for an event in virtual time; returns it with the time that it took, ns.
fn next_event(rank: &impl Rank, context: &rdmalab_verbs::Context) -> (Option<AsyncEvent>, u64) {
    let begin = rank.now();
    let event = context.async_event(Duration::from_millis(5)).unwrap();
    (event, (rank.now().0 - begin.0) / 1000)
}

#[test]
fn a_request_without_rights_is_an_event_at_its_target() {
    let (simulation, device) = lab(&model(&[("propagation_ns", 2000.0)]), 2);
    let (results, _) = simulation.run(|rank| {
        let end = connect(rank, &device, Shape::default());
        if rank.index() == 0 {
            rank.think(10_000)?;
            let peer = RemoteBuffer { rkey: end.peer.rkey ^ 1, ..end.peer };
            let sges = [end.mr.sge(0, 8)];
            let request = SendRequest::write(&sges, &peer, 0).signaled();
            end.qp.post_send(&[request]).unwrap();
            let wc = rank.spin(|| end.send_cq.poll_one().unwrap())?;
            assert!(!wc.is_ok());
            rank.barrier()?;
            return Ok((None, 0));
        }
        let found = next_event(rank, end.pd.context());
        let qp_num = found.0.and_then(|event| event.qp_num);
        assert_eq!(qp_num, Some(end.qp.qp_num()));
        rank.barrier()?;
        Ok(found)
    });
    let (event, waited_ns) = *results[1].as_ref().unwrap();
    assert_eq!(event.map(|event| event.explain()), Some(ACCESS_ERROR));
    // After the pause of the sender and the way of the request, and not a whole time-out later.
    assert!((12_000..14_000).contains(&waited_ns), "{waited_ns} ns");
}

#[test]
fn an_event_that_does_not_come_takes_the_whole_limit() {
    let (simulation, device) = lab(&model(&[]), 1);
    let (results, _) = simulation.run(|rank| {
        let context = device.open().unwrap();
        Ok(next_event(rank, &context))
    });
    let (event, waited_ns) = results[0].as_ref().unwrap();
    assert_eq!(*event, None);
    assert!((5_000_000..5_001_000).contains(waited_ns), "{waited_ns} ns");
}

/// Deregistering memory takes until the adapter has read the payload that it began to read: the
/// message arrives whole.
#[test]
fn deregistering_waits_for_reads_under_way() {
    let read = [("wqe_read", 1.0), ("bus_read_ns", 5000.0)];
    let (simulation, device) = lab(&model(&read), 2);
    let (results, _) = simulation.run(|rank| {
        let end = connect(rank, &device, Shape::default());
        if rank.index() == 1 {
            end.qp.post_recv(&[RecvRequest::new(&[end.mr.sge(0, 64)])]).unwrap();
            rank.barrier()?;
            let bytes = wait(rank, &end.recv_cq).byte_len();
            rank.barrier()?;
            return Ok((bytes, 0));
        }
        let buffer = Buffer::private(4096).unwrap();
        let mr = end.pd.register(&buffer, Access::LOCAL_WRITE).unwrap();
        rank.barrier()?;
        end.qp.post_send(&[SendRequest::send(&[mr.sge(0, 64)]).signaled()]).unwrap();
        // The WQE is read, and the read of the payload is under way.
        rank.think(6000)?;
        let begin = rank.now();
        drop(mr);
        let took_ns = (rank.now().0 - begin.0) / 1000;
        wait(rank, &end.send_cq);
        rank.barrier()?;
        Ok((64, took_ns))
    });
    let [Ok((64, took_ns)), Ok((64, _))] = results[..] else { panic!("{results:?}") };
    assert!((1000..4000).contains(&took_ns), "{took_ns} ns");
}
