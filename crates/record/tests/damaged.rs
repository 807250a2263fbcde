//! Records whose samples were cut by a full disk or an interrupted copy, and captures in records.

use std::fs;
use std::path::Path;

use rdmalab_record::{CAPTURE_MAX_BYTES, Error, Record, Writer};

/// Copies a record of one-way times to a place where the test may damage it.
fn copied(to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/version-5");
    fs::create_dir(to.join("samples")).unwrap();
    for directory in ["", "samples"] {
        for entry in fs::read_dir(from.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap();
                fs::write(to.join(directory).join(name), fs::read(&path).unwrap()).unwrap();
            }
        }
    }
}

fn cut(dir: &Path, name: &str, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(dir.join(name)).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

/// A cut file's samples are left out. The complete ones, and conclusions from all, are still used.
#[test]
fn samples_that_were_cut_off_are_named_and_the_others_used() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    copied(dir);
    let whole = Record::open(dir).unwrap();
    assert_eq!(whole.damage, Vec::<String>::new());
    cut(dir, "samples/000000-one_way_ns-t_lat.npy", 12);
    let record = Record::open(dir).unwrap();
    let expected = "samples are damaged: samples/000000-one_way_ns-t_lat.npy (it has 236 bytes \
                    for 31 samples), and left out; summaries are still there";
    assert_eq!(record.damage, [expected]);
    let all = |record: &Record| format!("{:?}", (&record.points, &record.findings));
    assert_eq!(all(&record), all(&whole));
    let series: Vec<_> = record.points.iter().flat_map(|point| &point.series).collect();
    let (lost, kept) = series.split_first().unwrap();
    assert!(matches!(record.samples(lost), Err(Error::Read { .. })));
    assert_eq!(kept.len(), 7);
    assert!(kept.iter().all(|series| record.samples(series).is_ok()));
}

#[test]
fn one_line_names_the_first_of_several_cut_files() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    copied(dir);
    // Cuts all of a file, a part of a header, and a file that another series needs as well.
    cut(dir, "samples/000000-one_way_ns-t_lat.npy", 376);
    cut(dir, "samples/000001-one_way_ns-t_lat.npy", 400);
    cut(dir, "samples/000001-post_cost_ns-rank_0_.._x.npy", 1);
    let damage = Record::open(dir).unwrap().damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].contains("000000-one_way_ns-t_lat.npy (not a NumPy array"), "{damage:?}");
    assert!(damage[0].contains("and 2 more, and left out"), "{damage:?}");
}

#[test]
fn a_short_capture_is_kept_once_and_a_long_one_is_not() {
    let home = tempfile::tempdir().unwrap();
    copied(home.path());
    let record = Record::open(home.path()).unwrap();
    let writer = Writer::resume(&record).unwrap();
    let file = home.path().join("run.pcapng");
    let most = CAPTURE_MAX_BYTES as usize;
    fs::write(&file, vec![7; most + 1]).unwrap();
    assert!(!writer.keep_capture(&file).unwrap());
    assert_eq!(record.capture(), None);
    fs::write(&file, vec![7; most]).unwrap();
    assert!(writer.keep_capture(&file).unwrap());
    let kept = record.capture().unwrap();
    assert_eq!(fs::read(&kept).unwrap(), vec![7; most]);
    // Nothing in a record is overwritten, and what it has is enough.
    for bytes in [1, most + 1] {
        fs::write(&file, vec![8; bytes]).unwrap();
        assert!(writer.keep_capture(&file).unwrap());
        assert_eq!(fs::read(&kept).unwrap(), vec![7; most]);
    }
    assert!(matches!(writer.keep_capture(&home.path().join("none")), Err(Error::Read { .. })));
    // Somebody else's may be of any length.
    fs::write(&kept, vec![7; most + 1]).unwrap();
    assert_eq!(record.capture(), None);
    assert!(Record::open(home.path()).unwrap().damage.is_empty());
}

/// A damaged line is a point that was measured. A line that was not written to its end is none.
#[test]
fn a_point_that_cannot_be_read_was_measured() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    copied(dir);
    let whole = Record::open(dir).unwrap();
    let path = dir.join("points.jsonl");
    let mut lines = fs::read(&path).unwrap();
    lines.extend(b"{\"number\": 7, \"order");
    fs::write(&path, &lines).unwrap();
    let torn = Record::open(dir).unwrap();
    assert_eq!((torn.points.len(), torn.damaged_points), (whole.points.len(), 0));
    lines[0] = b'x';
    fs::write(&path, &lines).unwrap();
    let damaged = Record::open(dir).unwrap();
    assert_eq!((damaged.points.len(), damaged.damaged_points), (whole.points.len() - 1, 1));
    assert_eq!(damaged.unfinished_points(), whole.unfinished_points());
}
