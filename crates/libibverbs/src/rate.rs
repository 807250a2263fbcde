//! Static rates: codes, multiples of 2.5 Gbit/s, and Mbit/s (IBA 9.11).

use core::ffi::c_int;
use rdmalab_abi::consts::*;

/// A rate: its code, its multiple of 2.5 Gbit/s if it has one, and its speed in Mbit/s.
struct Rate {
    code: u32,
    mult: Option<c_int>,
    mbps: c_int,
}

const fn rate(code: u32, mult: Option<c_int>, mbps: c_int) -> Rate {
    Rate { code, mult, mbps }
}

/// From FDR on, rates are no multiples of 2.5 Gbit/s; some have a rounded multiple.
const RATES: &[Rate] = &[
    rate(IBV_RATE_2_5_GBPS, Some(1), 2_500),
    rate(IBV_RATE_5_GBPS, Some(2), 5_000),
    rate(IBV_RATE_10_GBPS, Some(4), 10_000),
    rate(IBV_RATE_20_GBPS, Some(8), 20_000),
    rate(IBV_RATE_30_GBPS, Some(12), 30_000),
    rate(IBV_RATE_40_GBPS, Some(16), 40_000),
    rate(IBV_RATE_60_GBPS, Some(24), 60_000),
    rate(IBV_RATE_80_GBPS, Some(32), 80_000),
    rate(IBV_RATE_120_GBPS, Some(48), 120_000),
    rate(IBV_RATE_14_GBPS, None, 14_062),
    rate(IBV_RATE_56_GBPS, None, 56_250),
    rate(IBV_RATE_112_GBPS, None, 112_500),
    rate(IBV_RATE_168_GBPS, None, 168_750),
    rate(IBV_RATE_25_GBPS, None, 25_781),
    rate(IBV_RATE_100_GBPS, None, 103_125),
    rate(IBV_RATE_200_GBPS, None, 206_250),
    rate(IBV_RATE_300_GBPS, None, 309_375),
    rate(IBV_RATE_28_GBPS, Some(11), 28_125),
    rate(IBV_RATE_50_GBPS, Some(20), 53_125),
    rate(IBV_RATE_400_GBPS, Some(160), 425_000),
    rate(IBV_RATE_600_GBPS, Some(240), 637_500),
    rate(IBV_RATE_800_GBPS, Some(320), 850_000),
    rate(IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

/// The multiple of 2.5 Gbit/s of a rate, or -1.
pub fn ibv_rate_to_mult(code: u32) -> c_int {
    RATES.iter().find(|rate| rate.code == code).and_then(|rate| rate.mult).unwrap_or(-1)
}

/// The code of a multiple of 2.5 Gbit/s, or `IBV_RATE_MAX`.
pub fn mult_to_ibv_rate(mult: c_int) -> u32 {
    RATES.iter().find(|rate| rate.mult == Some(mult)).map_or(IBV_RATE_MAX, |rate| rate.code)
}

/// The speed of a rate in Mbit/s, or -1.
pub fn ibv_rate_to_mbps(code: u32) -> c_int {
    RATES.iter().find(|rate| rate.code == code).map_or(-1, |rate| rate.mbps)
}

/// The code of a speed in Mbit/s, or `IBV_RATE_MAX`.
pub fn mbps_to_ibv_rate(mbps: c_int) -> u32 {
    RATES.iter().find(|rate| rate.mbps == mbps).map_or(IBV_RATE_MAX, |rate| rate.code)
}
