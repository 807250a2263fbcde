//! The parameters of the model: name, unit, meaning and range of each, once.

use rdmalab_wire::ids::PathMtu;
use serde::{Deserialize, Serialize};

use crate::time::{Ps, Rate};

/// A value that a profile gives as a number.
trait Value: Copy {
    /// Whether the number is a whole one.
    const IS_WHOLE: bool = false;
    /// From the number in the profile.
    fn of(number: f64) -> Self;
    /// The number in the profile.
    fn number(self) -> f64;
}

/// Times are numbers of nanoseconds.
impl Value for Ps {
    fn of(number: f64) -> Ps {
        Ps::from_ns(number)
    }
    fn number(self) -> f64 {
        self.ns()
    }
}

/// Rates are numbers of 10^6 bytes per second; 0 has no limit.
impl Value for Rate {
    fn of(number: f64) -> Rate {
        Rate::from_mb_per_s(number)
    }
    fn number(self) -> f64 {
        self.mb_per_s()
    }
}

impl Value for u32 {
    const IS_WHOLE: bool = true;
    fn of(number: f64) -> u32 {
        number.round() as u32
    }
    fn number(self) -> f64 {
        self.into()
    }
}

/// What is known of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name. That of a time or a rate ends with its unit.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// The least value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The value if a profile has none; `None` if every profile needs one.
    pub default: Option<f64>,
    /// Whether it is a whole number.
    pub is_whole: bool,
}

macro_rules! parameters {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty, $min:literal ..= $max:literal
        $(, default $default:literal)?;)+) => {
        /// The values of a model.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        pub struct Parameters {
            $($(#[doc = $doc])+ pub $name: $kind,)+
        }

        impl Parameters {
            /// All parameters.
            pub const ALL: &[Parameter] = &[$(Parameter {
                name: stringify!($name),
                meaning: concat!($($doc),+),
                min: $min as f64,
                max: $max as f64,
                default: parameters!(@default $($default)?),
                is_whole: <$kind as Value>::IS_WHOLE,
            }),+];

            /// All parameters at the least value that they may have, which is mostly 0.
            #[must_use]
            pub fn least() -> Parameters {
                Parameters { $($name: Value::of($min as f64),)+ }
            }

            /// The value of a parameter; `None` if there is none of this name.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<f64> {
                match name {
                    $(stringify!($name) => Some(self.$name.number()),)+
                    _ => None,
                }
            }

            /// Sets a parameter that exists to a value in its range.
            fn put(&mut self, name: &str, number: f64) {
                match name {
                    $(stringify!($name) => self.$name = Value::of(number),)+
                    _ => {}
                }
            }
        }
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default as f64) };
}

parameters! {
    /// Time of a time stamp.
    stamp_ns: Ps, 1 ..= 1e6;
    /// Time of a post of one send request, for the processor.
    post_ns: Ps, 0 ..= 1e6;
    /// Time by which a post takes longer if the rank has posted nothing for longer than
    /// wake_cold_after_ns: what it needs has left the caches.
    post_cold_ns: Ps, 0 ..= 1e6, default 0;
    /// Time of each further request of a list.
    post_more_ns: Ps, 0 ..= 1e6, default 0;
    /// Time to copy inline data, for each 64 bytes begun.
    inline_ns_per_64_bytes: Ps, 0 ..= 1e6, default 0;
    /// Time of a post of a receive request.
    recv_post_ns: Ps, 0 ..= 1e6;
    /// Time of a poll that finds a completion.
    poll_hit_ns: Ps, 1 ..= 1e6;
    /// Time of each further completion that a poll takes.
    poll_more_ns: Ps, 0 ..= 1e6, default 0;
    /// Time of a poll that finds nothing.
    poll_empty_ns: Ps, 1 ..= 1e6;
    /// Time of a look at memory that the adapter writes, and of a look for an event.
    memory_look_ns: Ps, 1 ..= 1e6;
    /// Time to request an event.
    arm_ns: Ps, 0 ..= 1e6, default 0;
    /// Time from an event to the return of the wait for it, if the processor sleeps. An event that
    /// is there already takes none.
    wake_ns: Ps, 0 ..= 1e9, default 0;
    /// The same after the processor was idle for longer than wake_cold_after_ns.
    wake_cold_ns: Ps, 0 ..= 1e9, default 0;
    /// How long a processor is idle until it needs wake_cold_ns, and how long a rank posts nothing
    /// until it needs post_cold_ns; 0 means that it never does.
    wake_cold_after_ns: Ps, 0 ..= 1e12, default 0;
    /// Time to create, modify or destroy a queue pair, and to create other objects.
    verb_ns: Ps, 0 ..= 1e9, default 0;
    /// Time to register memory, without its pages.
    register_ns: Ps, 0 ..= 1e9, default 0;
    /// Time to register a page of 4096 bytes.
    register_ns_per_page: Ps, 0 ..= 1e9, default 0;
    /// Time to deregister memory.
    deregister_ns: Ps, 0 ..= 1e9, default 0;
    /// Rate at which the processor copies memory.
    copy_mb_per_s: Rate, 0 ..= 1e7, default 0;
    /// Time until a write of the processor reaches the adapter.
    mmio_ns: Ps, 0 ..= 1e6, default 0;
    /// Time of a read by the adapter over the host bus, request and answer, without its bytes.
    bus_read_ns: Ps, 0 ..= 1e6, default 0;
    /// Time of a write by the adapter over the host bus, without its bytes.
    bus_write_ns: Ps, 0 ..= 1e6, default 0;
    /// Rate of the host bus in each direction.
    bus_mb_per_s: Rate, 0 ..= 1e7, default 0;
    /// 1: reads and writes share the rate of the bus. 0: they do not.
    bus_half_duplex: u32, 0 ..= 1, default 0;
    /// Most reads by the adapter that are under way on the bus; 0: any number. The payload of a
    /// message is one read.
    bus_reads: u32, 0 ..= 256, default 0;
    /// Most send WQEs that the adapter reads at once; 0: all that a doorbell tells of.
    wqes_per_read: u32, 0 ..= 64, default 0;
    /// When the processor writes a WQE to the adapter itself. 0: never. 1: if a post has one
    /// request and it is inline. 2: if a post has one request.
    blue_flame: u32, 0 ..= 2, default 0;
    /// The longest WQE that the processor writes to the adapter.
    blue_flame_bytes: u32, 64 ..= 4096, default 256;
    /// Inline data of a WQE is split into blocks of so many bytes with 4 bytes before each; 0:
    /// there are 4 bytes once.
    inline_block_bytes: u32, 0 ..= 4096, default 0;
    /// 1: the adapter reads WQEs and payload over the bus. 0: it has them without a read.
    wqe_read: u32, 0 ..= 1, default 1;
    /// Most bytes of consecutive packets of a message that take one turn at the engines, and move
    /// together while no other queue pair of the adapter sends. Fewer bytes cost time to simulate.
    turn_bytes: u32, 256 ..= 65536, default 65536;
    /// Delay of a message, response or acknowledgement in the adapter that sends it.
    /// It does not hold up the next one.
    send_ns: Ps, 0 ..= 1e6, default 0;
    /// Delay of a message, response or acknowledgement in the adapter that receives it, after its
    /// last packet arrived. It does not hold up the next one.
    receive_ns: Ps, 0 ..= 1e6, default 0;
    /// Time for which a request occupies the send engine, for each turn.
    send_gap_ns: Ps, 0 ..= 1e6, default 0;
    /// Time for which a message occupies the receive engine, for each turn.
    /// Acknowledgements take none.
    receive_gap_ns: Ps, 0 ..= 1e6, default 0;
    /// Delay of an acknowledgement in the adapter that sends it.
    ack_delay_ns: Ps, 0 ..= 1e9, default 0;
    /// Time for which the answer to a READ or an atomic occupies the send engine, for each turn.
    read_answer_gap_ns: Ps, 0 ..= 1e6, default 0;
    /// Time until a completion is visible, besides its write over the bus.
    completion_ns: Ps, 0 ..= 1e6, default 0;
    /// Sets of the cache of queue pair contexts; 0: all contexts are always there.
    context_sets: u32, 0 ..= 65536, default 0;
    /// Contexts in each set.
    context_ways: u32, 1 ..= 1024, default 1;
    /// Time to read a context that is not in the cache, for which the engine waits. Sending and
    /// receiving share the cache.
    context_miss_ns: Ps, 0 ..= 1e6, default 0;
    /// Bytes of receive WQEs that the adapter reads at once; 0: it has them as they are posted.
    recv_chunk_bytes: u32, 0 ..= 65536, default 0;
    /// Time to read such a chunk, with its bytes. The bus stays free meanwhile.
    recv_chunk_ns: Ps, 0 ..= 1e6, default 0;
    /// Further time to read the first chunk of a page or of the ring, from the second pass on.
    recv_page_ns: Ps, 0 ..= 1e6, default 0;
    /// Least bytes of a receive WQE in a queue of a queue pair.
    recv_stride_bytes: u32, 16 ..= 4096, default 16;
    /// Least bytes of a receive WQE in a shared receive queue.
    srq_stride_bytes: u32, 16 ..= 4096, default 32;
    /// Bytes of a receive WQE in a shared receive queue before its pieces.
    srq_header_bytes: u32, 0 ..= 4096, default 16;
    /// The least code of a local ACK time-out: an adapter takes smaller codes for this one. It is
    /// also the local_ca_ack_delay of the device.
    ack_timeout_min_code: u32, 0 ..= 31, default 0;
    /// 1: the adapter looks at the time-outs of its queue pairs once in T_tr, and sends again when
    /// nothing came for a whole period: after T_tr to 2 T_tr. 0: it does so after T_tr.
    ack_timeout_scan: u32, 0 ..= 1, default 0;
    /// The wait after an RNR NAK, in percent of the time that the NAK asks for.
    rnr_wait_percent: u32, 100 ..= 10000, default 100;
    /// 1: the adapter discards responses that arrive while it waits after an RNR NAK.
    rnr_discards_responses: u32, 0 ..= 1, default 0;
    /// Least time until a page comes that the adapter found missing (On-Demand Paging); 0: the
    /// adapter has no On-Demand Paging.
    odp_resolve_ns: Ps, 0 ..= 1e9, default 0;
    /// Mean of the random time that a page takes beyond that. It is distributed exponentially.
    odp_resolve_mean_ns: Ps, 0 ..= 1e9, default 0;
    /// Delay of the RNR NAK that answers a READ whose page is missing.
    odp_read_nak_ns: Ps, 0 ..= 1e9, default 0;
    /// Delay of the RNR NAK that answers another request whose page is missing.
    odp_nak_ns: Ps, 0 ..= 1e9, default 0;
    /// 1: the adapter answers such a READ when the page has come. 0: when it is repeated.
    odp_serves_faulted_reads: u32, 0 ..= 1, default 0;
    /// Time until a request is repeated whose response found a page missing.
    odp_repeat_ns: Ps, 1 ..= 1e9, default 500000;
    /// Queue pairs that may hold a fault context at a time: they learn one after the other that
    /// the page has come. 0: queue pairs need no such context.
    odp_fault_contexts: u32, 0 ..= 65536, default 0;
    /// Time to tell one of them.
    odp_resume_ns: Ps, 0 ..= 1e9, default 0;
    /// Least time for which the adapter serves a READ that was repeated. Requests that it gets for
    /// the first time meanwhile, on the same queue pair, are lost (packet damming). 0: none is.
    damming_ns: Ps, 0 ..= 1e9, default 0;
    /// Mean of the random time that it takes beyond that. It is distributed exponentially.
    damming_mean_ns: Ps, 0 ..= 1e9, default 0;
    /// Mean of a random delay of each message, response or acknowledgement in the adapter that
    /// receives it, for each turn. It is distributed exponentially.
    jitter_ns: Ps, 0 ..= 1e6, default 0;
    /// Interrupts of each processor in a second between interrupts, at random times.
    interrupts_per_s: u32, 0 ..= 1000000, default 0;
    /// Time of an interrupt.
    interrupt_ns: Ps, 0 ..= 1e9, default 0;
    /// Rate of the link for the bytes of packets.
    link_mb_per_s: Rate, 0 ..= 1e7;
    /// Time of a signal on a cable; with a switch there are two cables.
    propagation_ns: Ps, 0 ..= 1e9;
    /// Time of a multicast in the switch, besides switch_ns.
    multicast_ns: Ps, 0 ..= 1e9, default 0;
    /// Time of a packet in a switch, from its first byte in to its first byte out.
    switch_ns: Ps, 0 ..= 1e6, default 0;
    /// Adapters at each leaf switch of a fat tree of two levels; 0: one switch connects all.
    leaf_ports: u32, 0 ..= 1024, default 0;
    /// Links from each leaf switch up, each to a spine switch of its own; 0: as many as adapters.
    leaf_uplinks: u32, 0 ..= 1024, default 0;
    /// 1: two adapters are connected by a switch too. 0: they are connected back to back.
    switch_between_two: u32, 0 ..= 1, default 0;
    /// Bytes of each packet besides payload, as the link carries them. They are the same for all
    /// packets.
    packet_overhead_bytes: u32, 0 ..= 1024, default 0;
    /// The largest payload of a packet.
    mtu_bytes: u32, 256 ..= 4096, default 4096;
    /// Most inline bytes.
    max_inline_bytes: u32, 0 ..= 1024, default 1024;
    /// Most requests in a queue.
    max_wr: u32, 1 ..= 32768, default 16384;
    /// Most pieces of a request.
    max_sge: u32, 1 ..= 32, default 32;
    /// Most READs and atomics that a queue pair has in flight, and answers.
    max_rd_atomic: u32, 1 ..= 128, default 16;
}

impl Parameters {
    /// Whether times are drawn at random.
    #[must_use]
    pub fn has_noise(&self) -> bool {
        self.jitter_ns > Ps::ZERO || self.interrupts_per_s > 0
    }

    /// Whether times of page faults, and of READs that are repeated because of them, are drawn at
    /// random.
    #[must_use]
    pub fn has_paging_noise(&self) -> bool {
        self.odp_resolve_mean_ns > Ps::ZERO || self.damming_mean_ns > Ps::ZERO
    }

    /// Sets a parameter by its name.
    ///
    /// # Errors
    /// There is none of this name, or the value is out of its range; one line says which.
    pub fn set(&mut self, name: &str, number: f64) -> Result<(), String> {
        let Some(parameter) = Self::ALL.iter().find(|parameter| parameter.name == name) else {
            let near = nearest(name).map_or(String::new(), |near| format!(": is {near} meant?"));
            return Err(format!("there is no parameter {name}{near}"));
        };
        let Parameter { min, max, is_whole, .. } = *parameter;
        if !(min..=max).contains(&number) || (is_whole && number.fract() != 0.0) {
            let whole = if is_whole { "a whole number " } else { "" };
            return Err(format!("{name} = {number}: it must be {whole}from {min} to {max}"));
        }
        if name == "mtu_bytes" && PathMtu::from_bytes(number as u32).is_none() {
            return Err(format!("{name} = {number}: it must be 256, 512, 1024, 2048 or 4096"));
        }
        self.put(name, number);
        Ok(())
    }
}

/// The parameter whose name is most like `name`, if one is alike.
fn nearest(name: &str) -> Option<&'static str> {
    let alike = |other: &str| {
        let same = other.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let words = other.split('_').filter(|word| name.split('_').any(|of| of == *word)).count();
        (words, same)
    };
    let best = Parameters::ALL.iter().max_by_key(|parameter| alike(parameter.name))?;
    (alike(best.name) >= (1, 3)).then_some(best.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_set_and_read_by_its_name_within_its_range() {
        let mut all = Parameters::least();
        for parameter in Parameters::ALL {
            let middle = match parameter.name {
                "mtu_bytes" => 2048.0,
                _ => ((parameter.min + parameter.max) / 2.0).round(),
            };
            assert_eq!(all.set(parameter.name, middle), Ok(()), "{}", parameter.name);
            let got = all.get(parameter.name).unwrap();
            assert!((got - middle).abs() <= middle * 1e-5, "{}: {got}", parameter.name);
            assert!(all.set(parameter.name, parameter.max * 2.0 + 1.0).is_err());
            assert!(
                all.set(parameter.name, -1.0).is_err()
                    && all.set(parameter.name, f64::NAN).is_err()
            );
            assert!(!parameter.meaning.is_empty());
        }
    }

    #[test]
    fn a_wrong_name_or_value_is_explained() {
        let mut all = Parameters::least();
        assert!(all.set("mtu_bytes", 999.0).unwrap_err().ends_with("256, 512, 1024, 2048 or 4096"));
        let said = all.set("bus_read", 1.0).unwrap_err();
        assert_eq!(said, "there is no parameter bus_read: is bus_read_ns meant?");
        let said = all.set("blue_flame", 0.5).unwrap_err();
        assert_eq!(said, "blue_flame = 0.5: it must be a whole number from 0 to 2");
    }
}
