use super::*;
use crate::blast::Blast;
use crate::common::params::Polling;

use crate::experiment::{Experiment, Own};
use crate::sweep::sweep;
use crate::workload::Workload;

fn limits() -> Limits {
    Limits {
        kind: "soft".into(),
        device: "soft0".into(),
        link_layer: "InfiniBand".into(),
        max_qp: 100,
        max_qp_wr: 16384,
        max_cqe: 131_072,
        max_mr_bytes: 1 << 40,
        has_atomics: true,
        max_rd_atomic: 16,
        profile: None,
        max_inline_bytes: 1024,
        max_sge: 32,
        max_srq_sge: 16,
        ports: 1,
        active_mtu_bytes: 4096,
        max_msg_bytes: 2 << 30,
        gids: 2,
        needs_gid: false,
        has_on_demand_paging: true,
        ack_delay_code: 0,
    }
}

fn checked(experiment: Experiment, options: &[(&str, &str)]) -> Result<(), String> {
    let points = sweep(experiment, options).unwrap();
    points.iter().try_for_each(|p| check(p, &limits())).map_err(|e| e.to_string())
}

#[test]
fn what_experiments_do_by_default_is_possible() {
    for experiment in Experiment::all() {
        assert_eq!(check(&Point::default_for(experiment), &limits()), Ok(()));
    }
}

#[test]
fn a_lid_that_nobody_has_is_of_ports_that_have_some() {
    let mut point = Point::default_for(Experiment::TIMEOUT);
    point.set("absent", "lid").unwrap();
    assert_eq!(check(&point, &limits()), Ok(()));
    let ethernet = Limits { needs_gid: true, ..limits() };
    let said = check(&point, &ethernet).unwrap_err().to_string();
    assert!(said.starts_with("--absent lid") && said.contains("choose queue_pair"), "{said}");
    let by_address = point.with(|common| common.gid_index = Some(1));
    assert!(check(&by_address, &limits()).is_err());
}

/// EXPERIMENT | a point at the limit | one just beyond the limit | how the error starts.
const BOUNDS: &str = "
    ping   | op=read                      | op=read transport=uc              | --op read
    ping   | op=write transport=uc        | op=write transport=ud             | --op write
    ping   | op=write_read                | op=write_read transport=ud        | --op
    oneway | op=write                     | op=read                           | --op read
    ping   | op=fetch_add size=8          | op=fetch_add size=8 transport=uc  | --op fetch_add
    ping   | op=cmp-swap size=8           | op=cmp_swap size=16               | --size 16
    blast  | op=cmp_swap size=8           | op=cmp_swap size=8 transport=ud   | --op cmp_swap
    blast  | op=fetch_add size=8          | op=fetch_add                      | --size 65536
    oneway | op=send                      | op=fetch_add size=8               | --op fetch_add
    fan    | op=read                      | op=cmp_swap size=8                | --op cmp_swap
    ping   | op=fetch_add size=8 outstanding-reads=16 | op=fetch_add size=8 outstanding-reads=17 | \
        --outstanding-reads
    ping   | op=fetch_add size=8          | op=fetch_add size=8 inline=on     | --inline on
    ping   | verify=yes size=16           | verify=yes size=15                | --size 15
    blast  | verify=yes                   | verify=yes op=write               | --op write
    ping   | verify=yes threads=2         | verify=yes threads=2 share-qp=yes | --share-qp yes
    blast  | bidirectional=yes            | bidirectional=yes rate=1000       | --rate 1000
    blast  | bidirectional=yes            | bidirectional=yes threads=2       | --threads 2
    blast  | bidirectional=yes            | bidirectional=yes poll=event      | --poll-send event
    blast  | bidirectional=yes            | bidirectional=yes stamp-every=5   | --stamp-every 5
    ping   | sge=32                       | sge=33 size=64                    | --sge 33
    ping   | sge=8 size=8                 | sge=9 size=8                      | --sge 9
    ping   | op=read sge=2                | op=fetch_add size=8 sge=2         | --sge 2
    blast  | op=read                      | op=write_read                     | --op write_read
    ping   | port=1                       | port=2                            | --port 2
    ping   | gid-index=1                  | gid-index=2                       | --gid-index 2
    ping   | transport=ud size=4096       | transport=ud size=4097            | --size 4097
    ping   | transport=ud size=256 mtu=256 | transport=ud size=257 mtu=256    | --size 257
    oneway | op=send size=8               | op=send size=7                    | --size 7
    oneway | op=send_imm size=1           | op=write size=7                   | --size 7
    ping   | inline=on size=1024          | inline=on size=1025               | --inline on
    ping   | inline=1024                  | inline=1025                       | --inline 1025
    ping   | op=read                      | op=read inline=on                 | --inline on
    ping   | tx-depth=16384               | tx-depth=16385                    | --tx-depth 16385
    ping   | rx-depth=16384               | rx-depth=16385                    | --rx-depth 16385
    blast  | tx-depth=16384 qps=8         | tx-depth=16384 qps=9              | --tx-depth 16384
    blast  | qps=99 buffers=99            | qps=100 buffers=100               | --qps 100
    blast  | qps=8 buffers=8              | qps=9 buffers=8                   | --qps 9
    ping   | op=read outstanding-reads=16 | op=read outstanding-reads=17      | --outstanding-reads
    blast  | list=64                      | list=65                           | --list 65
    blast  | list=32 rx-depth=32          | list=33 rx-depth=32               | --list 33
    blast  | list=32 tx-depth=32 buffers=32 | list=33 tx-depth=32             | --list 33
    blast  | buffers=128                  | buffers=129                       | --buffers 129
    blast  | buffers=4 size=2G            | buffers=5 size=2G                 | --buffers 5
    ping   | signal-every=128             | signal-every=129                  | --signal-every 129
    blast  | signal-every=64              | signal-every=65                   | --signal-every 65
    blast  | signal-every=32 qps=2        | signal-every=33 qps=2             | --signal-every 33
    ping   | op=write poll-send=event     | op=write poll=event               | --poll-recv event
    oneway | stamps=recv                  | stamps=subm                       | --stamps subm
    oneway | stamps=send,recv              | stamps=send,comp                 | --stamps subm,send
    oneway | stamps=send,recv op=write_imm | stamps=send,recv op=write        | --stamps
    oneway | stamps=send,recv size=8      | stamps=send,recv size=7           | --stamps
    ping   | messages=33553432            | messages=33553433                 | --messages
    oneway | messages=15M runs=1 threads=2 | messages=15M runs=1 threads=2 rate=9 | --messages
    blast  | messages=4294966295 runs=1   | messages=4294966296 runs=1        | --messages
";

#[test]
fn each_bound_is_met_and_kept() {
    for line in BOUNDS.lines().filter(|l| !l.trim().is_empty()) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [experiment, good, bad, start] = cells[..] else { panic!("{line}") };
        let of = |text: &str| {
            let options: Vec<_> =
                text.split_whitespace().map(|o| o.split_once('=').unwrap()).collect();
            checked(experiment.parse().unwrap(), &options)
        };
        assert_eq!(of(good), Ok(()), "{good}");
        let error = of(bad).expect_err(start);
        assert!(error.starts_with(start), "{bad}: {error}");
        assert!(!error.contains('\n') && error.len() > start.len() + 20, "{error}");
    }
}

/// Figures of potter2018 (part A) and macarthur2012: FIGURE | EXPERIMENT | sweep | how many of its
/// points a device like the soft one can measure.
const STUDIES: &str = "
    event        | oneway | poll=event transport=rc,uc,ud tx-depth=8192 pause=0,1s messages=8000 | 6
    busy         | oneway | poll=busy transport=rc,uc,ud inline=off pause=0 warm-up=0 runs=25 | 3
    mixed        | oneway | poll-send=event poll-recv=busy transport=uc | 1
    submit-send  | oneway | stamps=send,recv transport=uc inline=off pause=0 | 1
    inline       | oneway | inline=off,on transport=uc | 2
    write-send   | oneway | op=send_imm,write_imm transport=rc,uc inline=off | 4
    unsignalled  | oneway | op=send_imm,write_imm signal-every=1,max inline=on | 4
    size         | oneway | size=8..32K*2 op=send_imm,write_imm transport=rc,uc,ud inline=off | 62
    size-inline  | oneway | size=8..1K*2 inline=on transport=rc,uc,ud | 24
    size-pause   | oneway | size=8..32K*2 pause=5500 transport=rc | 13
    fixed-burst  | oneway | size=8..1K*2 inline=on messages=2730 tx-depth=2730 burst=2730 | 8
    untouched    | oneway | touch=yes,no | 2
    1            | ping   | size=1..1K*2 op=send,write_imm inline=on,off poll=busy,event | 88
    1-write      | ping   | size=1..1K*2 op=write inline=on,off | 22
    2            | blast  | size=1..1K*2 buffers=1 op=send,write,write_imm,read poll=busy,event | 88
    3ab          | blast  | buffers=1..64*2 size=16,64,256,912 op=write inline=on list=1 | 28
    3cd          | blast  | buffers=1..64*2 size=16,64,256,912 op=write inline=on list=all | 28
    4            | blast  | buffers=1..128*2 size=1K,8K,32K,64K op=write list=all inline=off | 32
    5            | blast  | size=1K..256M*4 buffers=4 list=all op=send,write,write_imm,read | 40
    6ab          | blast  | buffers=256 signal-every=1,128 tx-depth=256 size=16 list=1,all | 4
    6c           | ping   | op=write_read size=1..512*2 unsignalled=write,read poll=busy,event | 40
";

#[test]
fn the_studies_can_be_expressed() {
    for line in STUDIES.lines().filter(|l| !l.trim().is_empty()) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [figure, experiment, text, count] = cells[..] else { panic!("{line}") };
        let options: Vec<_> = text.split_whitespace().map(|o| o.split_once('=').unwrap()).collect();
        let points = sweep(experiment.parse().unwrap(), &options).unwrap();
        let can = points.iter().filter(|p| check(p, &limits()).is_ok()).count();
        assert_eq!(can.to_string(), count, "{figure} of {} points", points.len());
    }
}

#[test]
fn limits_of_the_port_and_of_regions_count() {
    let small = Limits { active_mtu_bytes: 1024, max_msg_bytes: 4096, ..limits() };
    let of = |options: &[(&str, &str)], limits: &Limits| {
        let point = sweep(Experiment::PING, options).unwrap().remove(0);
        check(&point, limits).map_err(|e| e.option)
    };
    assert_eq!(of(&[("mtu", "1024")], &small), Ok(()));
    assert_eq!(of(&[("mtu", "2048")], &small), Err("mtu"));
    assert_eq!(of(&[("size", "4096")], &small), Ok(()));
    assert_eq!(of(&[("size", "4097")], &small), Err("size"));
    let short = Limits { max_mr_bytes: 100, ..limits() };
    assert_eq!(of(&[("size", "100")], &short), Ok(()));
    assert_eq!(of(&[("size", "101")], &short), Err("size"));
}

#[test]
fn a_point_from_a_file_is_held_to_the_ranges() {
    let point = Point::default_for(Experiment::PING).with(|common| common.retry_cnt = 8);
    assert_eq!(check(&point, &limits()).map_err(|e| e.option), Err("retry-cnt"));
    let point = Point::default_for(Experiment::BLAST).with(|common| common.qps = 0);
    assert_eq!(check(&point, &limits()).map_err(|e| e.option), Err("qps"));
    let mut point = Point::default_for(Experiment::BLAST);
    point.own = Own::new(Blast { buffers: 0, ..Blast::OWN });
    assert_eq!(check(&point, &limits()).map_err(|e| e.option), Err("buffers"));
    let mixed = Point::default_for(Experiment::PING);
    let mixed = mixed.with(|common| common.poll_send = Polling::Event);
    assert_eq!(check(&mixed, &limits()), Ok(()));
}
