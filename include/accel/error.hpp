#pragma once

#include <accel/export.hpp>

#include <stdexcept>
#include <string>

namespace accel {

/// The base of everything accel throws. Its text reads
/// `accel[rank/size] call: expected ..., found ...; remedy`.
class ACCEL_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The call was wrong. No gradient was sent, the group is still good: fix the call.
class ACCEL_API UsageError : public Error {
 public:
  using Error::Error;
};

/// Another rank threw in a backward that syncs. Every rank dropped the window; the group is still good and the next
/// window is exact. The rank that failed sees its own exception instead.
class ACCEL_API AbandonedError : public Error {
 public:
  using Error::Error;
};

/// A sample of a data set could not be read: names the sample and the epoch, and what the data set threw is nested in
/// it (std::rethrow_if_nested). Or a file of a data set could not be read or written: names file and line or place.
class ACCEL_API DataError : public Error {
 public:
  using Error::Error;
};

/// A peer or the network is gone. The group can no longer be used: end the job.
class ACCEL_API CommError : public Error {
 public:
  using Error::Error;
};

/// A peer did not answer within the time-out. As CommError: end the job.
class ACCEL_API TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

/// A checkpoint could not be read or written; names the file and the reason. What is in memory is unchanged.
class ACCEL_API CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A mistake in accel itself; please report it with its text.
class ACCEL_API InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace accel
