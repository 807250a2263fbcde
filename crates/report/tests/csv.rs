//! How a CSV reader parses our output.

mod common;

use rdmalab_record::Record;
use rdmalab_report::{csv, csv_of};
use tempfile::TempDir;

/// Records with different experiments, parameters and figures, one with a comma in a cell.
#[test]
fn several_records_are_one_table_that_a_reader_of_csv_takes() {
    let (_dirs, mut records) = several();
    records[0].header.device.profile = Some("a, \"b\"".to_owned());
    let text = csv_of(&records);
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().unwrap().clone();
    assert_eq!(heads.get(0), Some("record"));
    let column = |name: &str| heads.iter().position(|head| head == name).expect(name);
    // The reader fails if a line has another number of cells than the header.
    let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let own: Vec<usize> = records.iter().map(|record| csv(record).lines().count() - 1).collect();
    assert_eq!(rows.len(), own.iter().sum::<usize>());
    for (i, record) in records.iter().enumerate() {
        let name = record.dir.display().to_string();
        let of: Vec<_> = rows.iter().filter(|row| row.get(0) == Some(name.as_str())).collect();
        assert_eq!(of.len(), own[i]);
        let experiment = Some(record.header.experiment.as_str());
        assert!(of.iter().all(|row| row.get(column("experiment")) == experiment));
        // Columns that only the first record has are empty in lines of the others.
        let profile = of[0].get(column("device_profile"));
        assert_eq!(profile, Some(if i == 0 { "a, \"b\"" } else { "" }));
    }
    // The output for a single record is unchanged.
    assert_eq!(csv_of(&records[..1]), csv(&records[0]));
}

fn several() -> ([TempDir; 3], Vec<Record>) {
    let [(a, ping), (b, blast), (c, poor)] =
        [common::ping(2000, &[8, 512]), common::blast(), common::poor()];
    ([a, b, c], vec![ping, blast, poor])
}
