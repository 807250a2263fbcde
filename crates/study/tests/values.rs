//! Published values beside what follows from two of our numbers, beside a share, and beside none.

use std::time::{Duration, SystemTime};

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_record::{Device, DeviceKind, Environment, Header, PointId, Record, Writer};
use rdmalab_study::{Compared, Part, Standing, State, Study, Verdict, evaluate};
use serde_json::{Value, json};

const PLAN: &str = "key='a'\ntitle='T'\nsource='S'\nhardware='H'\n\
    [[figure]]\nkey='f'\ntitle='F'\n[[figure.sweep]]\nrun='oneway'\n";
const PUBLISHED: &str = "metric,value,unit,tolerance,kind,place,what\n\
    off,1000,ns,3%,calibration,p. 1,w\nreduction,28,%,2 points,calibration,p. 1,w\n\
    slope,0.02,us/node,20%,calibration,p. 1,w\ntail,1,%,factor 2,calibration,p. 1,w\n\
    words,much,-,,context,p. 1,w\nctx.size,32,B,exact,context,p. 1,w\n";

/// 1000 ns and 720 ns; of the first, two samples of a hundred are above 10 us.
fn record(parent: &std::path::Path) -> Record {
    let device = Device { name: "made up".to_owned(), kind: DeviceKind::System };
    let header = Header::new("oneway", Vec::new(), device);
    let mut writer = Writer::create(parent, header, &Environment::default()).unwrap();
    for (order, (inline, ns, peers)) in
        [("off", 1000.0, 9), ("on", 720.0, 9), ("on", 1020.0, 24)].into_iter().enumerate()
    {
        let samples = (0..2000).map(|i| if i % 50 == 7 && inline == "off" { 11e3 } else { ns });
        let mut outcome = Outcome::default();
        outcome.push_series(Quantity::OneWay, "t_lat", 0, samples.collect());
        let parameters: Value = json!({ "inline_bytes": inline, "peers": peers });
        let id = PointId {
            parameters: parameters.as_object().unwrap().clone(),
            repetition: 0,
            order_index: order as u64,
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_secs(1),
        };
        writer.append(&id, &outcome).unwrap();
    }
    Record::open(writer.dir()).unwrap()
}

fn evaluated(claims: &str) -> rdmalab_study::Evaluation {
    let home = tempfile::tempdir().unwrap();
    let study = Study::parse("a", PLAN, PUBLISHED, claims).unwrap();
    let state = State::Measured(Box::new(record(home.path())));
    let part = Part { figure: "f".to_owned(), sweep: String::new(), line: Vec::new(), state };
    evaluate(&study, &[part])
}

fn value(metric: &str, place: &str, rest: &str) -> Compared {
    let claims = format!(
        "[[value]]\nmetric='{metric}'\n\
         ours={{figure='f', quantity='one_way_ns', where={place}}}\n{rest}\n"
    );
    let mut values = evaluated(&claims).values;
    let at = values.iter().position(|v| v.published.metric == metric).unwrap();
    values.remove(at)
}

#[test]
fn what_follows_from_two_numbers_stands_beside_a_value() {
    let nine_on = "{inline_bytes='on', peers=9}";
    let over = "over={where={inline_bytes='off'}}\nas='reduction'";
    let found = value("reduction", nine_on, over);
    assert_eq!(found.standing, Standing::Within);
    let (what, number) = found.ours.unwrap();
    assert_eq!((what.as_str(), &number[..5]), ("by how much one is less: median one-way", "0.280"));
    // As it is, a ratio of 0.72 is no 28 %.
    let plain = "over={where={inline_bytes='off'}}";
    assert_eq!(value("reduction", nine_on, plain).standing, Standing::Beyond);
    // 300 ns more with 15 peers more.
    let less = format!("less={{where={{peers=9}}}}\nper={}", 24 - 9);
    let found = value("slope", "{inline_bytes='on', peers=24}", &less);
    assert_eq!((found.standing, found.ratio), (Standing::Within, Some(1.0)));
    let none = value("slope", "{inline_bytes='on', peers=24}", "less={where={peers=8}}");
    assert_eq!(none.standing, Standing::Absent("figure f has no such point".to_owned()));
    let several = value("off", "{inline_bytes='on'}", "");
    assert_eq!(several.standing, Standing::Absent("2 points of ours fit".to_owned()));
}

#[test]
fn a_share_above_a_limit_is_a_number() {
    let claims = "[[value]]\nmetric='tail'\nours={figure='f', quantity='one_way_ns', above=10000, \
        where={inline_bytes='off'}}\n";
    let found = evaluated(claims).values.into_iter().find(|v| v.published.metric == "tail");
    let found = found.unwrap();
    // 2 %: a factor of two of 1 %.
    assert_eq!(found.standing, Standing::Within);
    assert_eq!(found.ours.unwrap().0, "share of one-way above 10.0 us");
    let claim = |factor: u32| {
        let text = format!(
            "[[claim]]\nkey='c'\nsays='s'\nsource='p. 1'\nrelation='<'\nfactor={factor}\n\
             left={{figure='f', quantity='one_way_ns', above=10000,\
             where={{inline_bytes='off'}}}}\n\
             right={{published='tail'}}\n"
        );
        evaluated(&text).claims.remove(0).verdict
    };
    assert_eq!(claim(4), Verdict::Confirmed(String::new()));
    assert_eq!(claim(1).name(), "refuted");
    // Forty of 2000: the interval has 2 %, and allows a little more.
    assert_eq!(claim(2).name(), "cannot be seen");
}

#[test]
fn a_value_that_nothing_produces_says_why() {
    let absent = "[[absent]]\nmetrics=['ctx.*', 'words']\nbecause='a condition'\n";
    let standing = |metric: &str| {
        let values = evaluated(absent).values;
        values.into_iter().find(|v| v.published.metric == metric).unwrap().standing
    };
    assert_eq!(standing("ctx.size"), Standing::NotProduced("a condition".to_owned()));
    assert_eq!(standing("words"), Standing::NotProduced("a condition".to_owned()));
    let nothing = Standing::NotProduced("nothing is named in claims.toml".to_owned());
    assert_eq!(standing("off"), nothing);
}
