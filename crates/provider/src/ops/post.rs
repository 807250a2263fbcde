//! Posting work requests: C's linked lists as iterators, without a copy and without a lock.

use core::ffi::c_int;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::{ptr, slice};

use rdmalab_abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_ah,
    ibv_mw_bind_info, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
};
use rdmalab_engine::backend::{Backend, MwBind, PostError, RecvWr, SendWr, VerbsError};
use rdmalab_engine::vocab::{Access, SendFlags, Sge, UdAddress, WrOpcode};
use rdmalab_wire::ids::Qpn;

use crate::answer;
use crate::object::{AhObject, QpObject, SrqObject};

// The backend reads scatter/gather elements directly from the caller's arrays.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>());
    assert!(align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

/// The send flags that this project's devices support.
pub(crate) const SEND_FLAGS: u32 =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// A request as one link of a C list.
trait Link: Sized {
    /// The next link, or null.
    fn next(&self) -> *mut Self;
}

impl Link for ibv_send_wr {
    #[inline(always)]
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Link for ibv_recv_wr {
    #[inline(always)]
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// Iterates over a list; ends early at a request that cannot be converted.
struct Chain<'a, L> {
    at: *mut L,
    /// Whether a send carries an address.
    is_ud: bool,
    /// Why the request at `at` cannot be converted.
    refused: Option<PostError>,
    list: PhantomData<&'a L>,
}

impl<L: Link> Chain<'_, L> {
    /// # Safety
    /// Every link of the list, and the arrays and objects that it names, stay as they are while
    /// the chain or anything it yielded is in use.
    #[inline(always)]
    unsafe fn new(first: *mut L, is_ud: bool) -> Self {
        Chain { at: first, is_ud, refused: None, list: PhantomData }
    }

    /// Ends the iteration at the present request.
    #[cold]
    fn refuse(&mut self, error: PostError) {
        self.refused = Some(error);
    }
}

impl<'a> Iterator for Chain<'a, ibv_send_wr> {
    type Item = SendWr<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<SendWr<'a>> {
        if self.at.is_null() || self.refused.is_some() {
            return None;
        }
        // SAFETY: a link that is not null is a request of the caller, by the contract of `new`.
        let wr: &'a ibv_send_wr = unsafe { &*self.at };
        // SAFETY: by the same contract the objects and arrays of the request are alive.
        match unsafe { read_send(wr, self.is_ud) } {
            Ok(send) => {
                self.at = wr.next();
                Some(send)
            }
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }
}

impl<'a> Iterator for Chain<'a, ibv_recv_wr> {
    type Item = RecvWr<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<RecvWr<'a>> {
        if self.at.is_null() || self.refused.is_some() {
            return None;
        }
        // SAFETY: a link that is not null is a request of the caller, by the contract of `new`.
        let wr: &'a ibv_recv_wr = unsafe { &*self.at };
        // SAFETY: the array of a request is alive, by the same contract.
        match unsafe { read_sges(wr.sg_list, wr.num_sge) } {
            Ok(sges) => {
                self.at = wr.next();
                Some(RecvWr { wr_id: wr.wr_id, sges })
            }
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }
}

/// The elements of a request.
///
/// # Safety
/// `list` points to `count` elements that live for `'a`, or is null.
#[inline(always)]
unsafe fn read_sges<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], PostError> {
    match count {
        0 => Ok(&[]),
        // SAFETY: by the contract, and `Sge` is laid out as `ibv_sge`.
        1.. if !list.is_null() => Ok(unsafe { slice::from_raw_parts(list.cast(), count as usize) }),
        _ => Err(PostError::TooManySges),
    }
}

/// Converts a request to the engine's type.
///
/// # Safety
/// The arrays and objects that the request names live for `'a`; on a UD QP its address handle is of
/// this provider or null.
#[inline(always)]
unsafe fn read_send<'a>(wr: &ibv_send_wr, is_ud: bool) -> Result<SendWr<'a>, PostError> {
    let opcode = WrOpcode::from_ibv(wr.opcode).ok_or(PostError::BadOpcode)?;
    if wr.send_flags & !SEND_FLAGS != 0 {
        return Err(PostError::BadOpcode);
    }
    let mut send = blank(wr.wr_id, opcode, SendFlags(wr.send_flags));
    send.imm_or_rkey = wr.imm_data;
    // SAFETY: by the contract; the fields of the union that are read are those of the opcode, or
    // of the transport, and any bits are a valid number.
    unsafe {
        send.sges = read_sges(wr.sg_list, wr.num_sge)?;
        if is_ud {
            send.ud = address(wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
            return Ok(send);
        }
        // The remote address has the same offset in all members of the union.
        send.remote_addr = wr.wr.rdma.remote_addr;
        match opcode {
            WrOpcode::CmpSwap | WrOpcode::FetchAdd => {
                send.rkey = wr.wr.atomic.rkey;
                send.compare_add = wr.wr.atomic.compare_add;
                send.swap = wr.wr.atomic.swap;
            }
            WrOpcode::BindMw => {
                let bind = wr.bind_mw_tso.bind_mw;
                if bind.mw.is_null() {
                    return Err(PostError::BadAddress);
                }
                send.bind = Some(window((*bind.mw).rkey, bind.rkey, &bind.bind_info));
            }
            _ => send.rkey = wr.wr.rdma.rkey,
        }
    }
    Ok(send)
}

/// A request with nothing but its number, opcode and flags.
#[inline(always)]
pub(crate) fn blank<'a>(wr_id: u64, opcode: WrOpcode, flags: SendFlags) -> SendWr<'a> {
    SendWr {
        wr_id,
        opcode,
        flags,
        imm_or_rkey: 0,
        sges: &[],
        remote_addr: 0,
        rkey: 0,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    }
}

/// The destination of a datagram; `None` without an address handle, which the backend refuses.
///
/// # Safety
/// `ah` is null or an address handle of this provider.
#[inline(always)]
pub(crate) unsafe fn address(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Option<UdAddress> {
    if ah.is_null() {
        return None;
    }
    // SAFETY: by the contract.
    let own = unsafe { AhObject::own(ah) };
    Some(UdAddress { ah: own.attr, remote_qpn: Qpn::new(qpn), remote_qkey: qkey })
}

/// The binding that a request asks for.
///
/// # Safety
/// The region of `info` is null or alive.
pub(crate) unsafe fn window(mw_rkey: u32, new_rkey: u32, info: &ibv_mw_bind_info) -> MwBind {
    // SAFETY: by the contract. Without a region the length is 0, and the key is not used.
    let mr_lkey = if info.mr.is_null() { 0 } else { unsafe { (*info.mr).lkey } };
    MwBind {
        mw_rkey,
        new_rkey,
        mr_lkey,
        addr: info.addr,
        length: info.length,
        access: Access(info.mw_access_flags),
    }
}

/// The C return value of a post; sets `bad_wr` to the first request that was not posted.
///
/// # Safety
/// `first` and `chain` are the list that was posted; `bad_wr` is null or the caller's variable.
#[inline(always)]
unsafe fn finish<L: Link>(
    verb: &'static str,
    result: Result<(), (usize, PostError)>,
    first: *mut L,
    chain: &Chain<'_, L>,
    bad_wr: *mut *mut L,
) -> c_int {
    if let (Ok(()), None) = (result, chain.refused) {
        return 0;
    }
    // SAFETY: by the contract.
    unsafe { refused(verb, result, first, chain, bad_wr) }
}

/// # Safety
/// As for [`finish`].
#[cold]
#[inline(never)]
unsafe fn refused<L: Link>(
    verb: &'static str,
    result: Result<(), (usize, PostError)>,
    first: *mut L,
    chain: &Chain<'_, L>,
    bad_wr: *mut *mut L,
) -> c_int {
    let (bad, error) = match (result, chain.refused) {
        (Err((taken, error)), _) => {
            let mut at = first;
            for _ in 0..taken {
                if at.is_null() {
                    break;
                }
                // SAFETY: links that are not null are the caller's requests.
                at = unsafe { (*at).next() };
            }
            (at, error)
        }
        (Ok(()), Some(error)) => (chain.at, error),
        (Ok(()), None) => (ptr::null_mut(), PostError::BadOpcode),
    };
    if !bad_wr.is_null() {
        // SAFETY: it is the caller's variable.
        unsafe { *bad_wr = bad };
    }
    answer::number(verb, &VerbsError::new(error.errno(), sentence(error)))
}

/// The message for a refused request.
pub(crate) fn sentence(error: PostError) -> &'static str {
    match error {
        PostError::QueueFull => {
            "the queue is full; poll its completions (a slot of an unsignalled send is free only \
             when a later signalled one was polled), or create the QP with a longer queue"
        }
        PostError::BadState => {
            "the QP takes no such request in its state; send from RTS on, receive from INIT on, \
             and to its SRQ when it has one"
        }
        PostError::BadOpcode => {
            "this transport has no such operation or flag (READ and atomics are RC's, UD has SEND \
             only, IP checksums are nobody's)"
        }
        PostError::TooManySges => "more scatter/gather elements than the QP was created with",
        PostError::InlineTooLong => {
            "more inline bytes than the max_inline_data that the QP was created with"
        }
        PostError::InlineAnswer => {
            "READ and atomics cannot be inline: their data comes back into registered memory; \
             leave out IBV_SEND_INLINE"
        }
        PostError::NoRdAtomic => {
            "READ and atomics need a max_rd_atomic of at least 1, which ibv_modify_qp sets on the \
             way to RTS"
        }
        PostError::TooLong => {
            "too long (UD: the path MTU; else 2^31 bytes), or not 8 for an atomic"
        }
        PostError::Fault => "an inline source address cannot be read",
        PostError::BadAddress => "no address handle, or an unusable key or window",
    }
}

/// `ibv_post_send`: 0, or an error number and the first request that was not taken.
///
/// # Safety
/// As for `ibv_post_send`: a QP of this backend and a list of requests.
pub(crate) unsafe extern "C-unwind" fn post_send<B: Backend>(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: every QP is allocated as the extended one with the private part after it; the list is
    // the caller's until this returns.
    unsafe {
        let own = QpObject::<B>::own(qp.cast());
        let mut chain = Chain::new(wr, own.is_ud);
        let result = B::post_send(&own.backend, &mut chain);
        finish("ibv_post_send", result, wr, &chain, bad_wr)
    }
}

/// `ibv_post_recv`: 0, or an error number and the first request that was not taken.
///
/// # Safety
/// As for `ibv_post_recv`: a QP of this backend and a list of requests.
pub(crate) unsafe extern "C-unwind" fn post_recv<B: Backend>(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as for `post_send`.
    unsafe {
        let own = QpObject::<B>::own(qp.cast());
        let mut chain = Chain::new(wr, false);
        let result = B::post_recv(&own.backend, &mut chain);
        finish("ibv_post_recv", result, wr, &chain, bad_wr)
    }
}

/// `ibv_post_srq_recv`: 0, or an error number and the first request that was not taken.
///
/// # Safety
/// As for `ibv_post_srq_recv`: an SRQ of this backend and a list of requests.
pub(crate) unsafe extern "C-unwind" fn post_srq_recv<B: Backend>(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: every SRQ has a private part after it; the list is the caller's until this returns.
    unsafe {
        let own = SrqObject::<B>::own(srq);
        let mut chain = Chain::new(wr, false);
        let result = B::post_srq_recv(&own.backend, &mut chain);
        finish("ibv_post_srq_recv", result, wr, &chain, bad_wr)
    }
}
