// SPDX-License-Identifier: MIT
//! Names for the places of a program that allocate.
use core::marker::PhantomData;
use hakmem_sys as sys;
use std::ffi::CString;

/// A named place of the program. While hakmem samples, all views show its memory by the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site(usize);

/// While it lives, its site is the site of this thread's allocations. Scopes nest.
#[derive(Debug)]
pub struct Scope {
    before: usize,
    /// It has to end in the thread that it began in.
    thread: PhantomData<*const ()>,
}

impl Site {
    /// The site of that name, cut to 63 bytes. The same name gives the same site. Takes a lock, so keep the result.
    pub fn new(name: &str) -> Site {
        let name: Vec<u8> = name.bytes().filter(|&byte| byte != 0).collect();
        let name = CString::new(name).unwrap_or_default();
        Site(unsafe { sys::hak_site_register(name.as_ptr()) })
    }

    /// From now on this thread allocates at this site, until the scope is dropped.
    #[must_use = "the scope ends where it is dropped"]
    pub fn enter(self) -> Scope {
        Scope {
            before: unsafe { sys::hak_site_enter(self.0) },
            thread: PhantomData,
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        unsafe { sys::hak_site_leave(self.before) }
    }
}
