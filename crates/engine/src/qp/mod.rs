//! The queue pair: requester, responder and completer, and the rules of its states.
