//! Protection domains, memory regions, and the scatter/gather elements of requests.

use std::marker::PhantomData;
use std::sync::Arc;

use rdmalab_abi as abi;
use rdmalab_abi::inline;

use crate::buffer::Buffer;
use crate::context::Context;
use crate::error::VerbsError;
use crate::flags::Access;
use crate::object::Object;

impl Context {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// The library's error.
    pub fn alloc_pd(&self) -> Result<Pd, VerbsError> {
        Pd::alloc(self)
    }
}

/// A protection domain: objects of one domain may be used together. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pd(Arc<PdInner>);

#[derive(Debug)]
struct PdInner {
    raw: Object<abi::ibv_pd>,
    context: Context,
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: made by this library, and all its objects are gone: each keeps this alive.
        let _ = unsafe { (self.context.library().table().dealloc_pd)(self.raw.as_ptr()) };
    }
}

impl Pd {
    pub(crate) fn alloc(context: &Context) -> Result<Self, VerbsError> {
        let library = context.library();
        // SAFETY: the context is open.
        let raw = unsafe { (library.table().alloc_pd)(context.raw()) };
        let raw = library.not_null("ibv_alloc_pd", raw)?;
        Ok(Self(Arc::new(PdInner { raw: raw.into(), context: context.clone() })))
    }

    pub(crate) fn raw(&self) -> *mut abi::ibv_pd {
        self.0.raw.as_ptr()
    }

    /// The open device that it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Fetches the pages of a part of an on-demand region before they are accessed, and waits for
    /// them. `write`: they will be written.
    ///
    /// # Errors
    /// `EOPNOTSUPP` without On-Demand Paging; `EINVAL` for another kind of region; `EFAULT` for
    /// bytes outside of it.
    pub fn prefetch(
        &self,
        mr: &Mr,
        from: usize,
        bytes: usize,
        write: bool,
    ) -> Result<(), VerbsError> {
        let mut list = [mr.sge(from, bytes).raw];
        let advice = match write {
            true => abi::IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
            false => abi::IBV_ADVISE_MR_ADVICE_PREFETCH,
        };
        let flush = abi::IBV_ADVISE_MR_FLAG_FLUSH;
        let list = list.as_mut_ptr();
        // SAFETY: the domain and the list are valid.
        let result = unsafe { inline::ibv_advise_mr(self.raw(), advice, flush, list, 1) };
        self.0.context.library().zero("ibv_advise_mr", result)
    }

    /// Registers a whole buffer, which stays alive as long as the region.
    ///
    /// # Errors
    /// `EINVAL` for remote writing without local writing; `ENOMEM` beyond the device's limits or
    /// the process's limit of locked memory.
    pub fn register(&self, buffer: &Buffer, access: Access) -> Result<Mr, VerbsError> {
        self.register_part(buffer, 0, buffer.len(), access)
    }

    /// Registers `bytes` of a buffer from `start` on. The whole buffer stays alive as long as the
    /// region.
    ///
    /// # Errors
    /// As [`Pd::register`].
    ///
    /// # Panics
    /// When the part goes beyond the end of the buffer.
    pub fn register_part(
        &self,
        buffer: &Buffer,
        start: usize,
        bytes: usize,
        access: Access,
    ) -> Result<Mr, VerbsError> {
        let fits = start.checked_add(bytes).is_some_and(|end| end <= buffer.len());
        assert!(fits, "{bytes} bytes at {start} of a buffer of {}", buffer.len());
        let library = self.context().library();
        let addr = buffer.addr() + start as u64;
        let at = addr as *mut std::ffi::c_void;
        let access = access.bits();
        // SAFETY: the domain is alive; the memory is, as long as the region keeps the buffer.
        let raw = unsafe { inline::ibv_reg_mr(library.table(), self.raw(), at, bytes, access) };
        let raw = library.not_null("ibv_reg_mr", raw)?;
        // SAFETY: the region has just been made; its keys do not change.
        let (lkey, rkey) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        let inner = MrInner { raw: raw.into(), pd: self.clone(), buffer: Some(buffer.clone()) };
        Ok(Mr { lkey, rkey, addr, bytes, buffer: buffer.clone(), _keep: Arc::new(inner) })
    }
}

/// A memory region. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mr {
    lkey: u32,
    rkey: u32,
    addr: u64,
    bytes: usize,
    buffer: Buffer,
    _keep: Arc<MrInner>,
}

#[derive(Debug)]
struct MrInner {
    raw: Object<abi::ibv_mr>,
    pd: Pd,
    buffer: Option<Buffer>,
}

impl Drop for MrInner {
    fn drop(&mut self) {
        let table = self.pd.context().library().table();
        // SAFETY: made by this library; this is its only deregistration.
        if unsafe { (table.dereg_mr)(self.raw.as_ptr()) } != 0 {
            // The device may still write there: the memory must never be used again.
            std::mem::forget(self.buffer.take());
        }
    }
}

impl Mr {
    /// The buffer of the region; the region is all of it, unless [`Pd::register_part`] made it.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Key for local use.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for use by peers.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// A piece of the region, by its offset from the begin of the region. The device checks key and
    /// bounds when it uses the piece.
    ///
    /// # Panics
    /// When the piece goes beyond the end of the region.
    #[must_use]
    pub fn sge(&self, offset: usize, bytes: usize) -> Sge<'_> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{bytes} bytes at {offset} of a region of {}", self.bytes);
        // The length of a piece has 32 bits; no message is longer than 2 GiB.
        let length = u32::try_from(bytes).expect("a piece is at most 4 GiB long");
        let addr = self.addr + offset as u64;
        Sge { raw: abi::ibv_sge { addr, length, lkey: self.lkey }, _memory: PhantomData }
    }

    /// The address and key by which a peer accesses this region.
    #[must_use]
    pub fn remote(&self) -> RemoteBuffer {
        RemoteBuffer { addr: self.addr, bytes: self.bytes as u64, rkey: self.rkey }
    }
}

/// A piece of a region, for a request.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Sge<'a> {
    pub(crate) raw: abi::ibv_sge,
    _memory: PhantomData<&'a Mr>,
}

impl<'a> Sge<'a> {
    /// Bytes that are not registered: for inline sends only, which copy them when posted.
    #[must_use]
    pub fn unregistered(bytes: &'a [u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let raw = abi::ibv_sge { addr: bytes.as_ptr() as u64, length, lkey: 0 };
        Self { raw, _memory: PhantomData }
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.raw.length
    }
}

/// Memory of a peer, with the address and key that the peer sent us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Address there.
    pub addr: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Key there.
    pub rkey: u32,
}
