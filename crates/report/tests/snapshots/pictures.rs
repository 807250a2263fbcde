//! Pictures: of all kinds, of packets, and maps of two numbers.

use rdmalab_record::Record;

use super::{common, tips};

#[test]
fn pictures_are_documents_of_their_own() {
    let (_dir, record) = common::ping(2000, &[8, 512, 32768]);
    let pictures = rdmalab_report::pictures(&record);
    assert!(pictures.len() >= 6, "{}", pictures.len());
    let mut names: Vec<&str> = pictures.iter().map(|p| p.name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), pictures.len());
    for picture in &pictures {
        assert!(picture.svg.starts_with("<svg xmlns="), "{}", picture.name);
        assert!(picture.svg.contains("not of an adapter"), "{}", picture.name);
        let tags = |mark: &str| picture.svg.matches(mark).count();
        assert_eq!(tags("<svg"), 1);
        assert_eq!(tags("<g "), picture.svg.matches("</g>").count() - tags("<g>"));
    }
    let all: String = names.join(" ");
    for kind in ["share-of-samples-at-or-above", "in-the-order-of-measurement", "distribution-at"] {
        assert!(all.contains(kind), "{kind}: {all}");
    }
}

/// What is written with this class, from top to bottom.
fn written<'a>(svg: &'a str, class: &str) -> Vec<&'a str> {
    let mark = format!("class='{class}'");
    let pieces = svg.split(&*mark).skip(1).filter_map(|piece| piece.split_once('>'));
    pieces.filter_map(|(_, rest)| Some(rest.split_once("</text>")?.0)).collect()
}

#[test]
fn a_capture_is_drawn_packet_by_packet() {
    let (_dir, record) = common::captured();
    let pictures = rdmalab_report::pictures(&record);
    let ladder =
        pictures.iter().find(|one| one.name.ends_with("packets-of-qp-0xa-and-qp-0x400a-rc"));
    let svg = &ladder.expect("a picture of that name").svg;
    assert_eq!(written(svg, "label"), ["QP 0xa", "QP 0x400a"]);
    let packets = "READ 0, RNR NAK 0, READ response 0, READ 0, READ 1, READ response 0, READ 1, \
                   READ response 1";
    assert_eq!(written(svg, "name").join(", "), packets);
    // The fault at the right end, and the READ that was lost.
    assert_eq!(written(svg, "c1"), ["page fault", "no answer"]);
    assert!(svg.contains("page fault at the responder: RNR NAK"), "{svg}");
    let calm = written(svg, "tick");
    assert!(calm.contains(&"532 ms later") && calm.contains(&"4.57 ms"), "{calm:?}");
    assert_eq!(calm.iter().filter(|text| **text == "repeated").count(), 2, "{calm:?}");
    // A capture that cannot be read is no reason to show nothing.
    let page = rdmalab_report::page(&record);
    assert!(page.contains("<h2>Packets</h2>"));
    std::fs::write(record.capture().unwrap(), "no capture").unwrap();
    let damaged = rdmalab_report::page(&record);
    assert!(!damaged.contains("<h2>Packets</h2>") && damaged.contains("</main>"));
}

#[test]
fn two_numbers_make_a_map() {
    let (_dir, record) = common::grid();
    let pictures = rdmalab_report::pictures(&record);
    let map = pictures.iter().find(|p| p.svg.contains("class='heat'")).expect("a heat map");
    assert_eq!(map.svg.matches("class='heat'").count(), 12);
    assert!(map.svg.contains("buffers 4, size 64 B: "), "{}", map.svg);
}

#[test]
fn a_map_marks_the_points_that_missed_much() {
    let maps_of = |record: &Record| -> Vec<String> {
        let all = rdmalab_report::pictures(record).into_iter().map(|picture| picture.svg);
        all.filter(|svg| svg.contains("class='heat'") && svg.contains("Median")).collect()
    };
    let (_dir, record) = common::grid_that_missed(|size| (size >= 512).then_some(0.11));
    let maps = maps_of(&record);
    let is_marked = |tip: &&str| tip.ends_with(" *");
    let large = |tip: &&str| tip.contains("size 512 B: ") || tip.contains("size 4 KiB: ");
    assert!(!maps.is_empty());
    for map in maps {
        assert!(map.contains("; * where more than 10 % was missed"), "{map}");
        let cells: Vec<&str> = tips(&map).filter(|tip| tip.contains("size ")).collect();
        assert_eq!(cells.iter().filter(|tip| is_marked(tip)).count(), 8, "{cells:?}");
        assert!(cells.iter().all(|tip| is_marked(tip) == large(tip)), "{cells:?}");
    }
    let (_dir, record) = common::grid_that_missed(|_| Some(0.1));
    for map in maps_of(&record) {
        assert!(!map.contains("where more than") && !tips(&map).any(|tip| is_marked(&tip)));
    }
}
