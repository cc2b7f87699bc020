"""AWS's error codes by what each means to the caller: what AWS documents for the calls that we make.

EC2's are those of "Error codes for the Amazon EC2 API" (API reference, read 2026-11-22) and the codes in EC2
Fleet's answers, which that page leaves out (`InvalidFleetConfig`, `MaxFleetCountExceeded`: Karpenter's
`pkg/errors`). Those of other services are in botocore's models, those of all in "Common errors".
"""

from __future__ import annotations

RETRY_LATER = (
    "CodeArtifactUserPendingException",
    "ConcurrentModification",
    "ConcurrentModificationException",
    "ConcurrentTagAccess",
    "ConflictException",
    "CreditSpecificationUpdateInProgress",
    "DataUnavailableException",
    "EC2ThrottledException",
    "EC2UnexpectedException",
    "EFSIOException",
    "EFSMountConnectivityException",
    "EFSMountTimeoutException",
    "ENILimitReachedException",
    "ENINotReadyException",
    "IncorrectInstanceState",  # a pending instance cannot stop yet, a stopping one cannot start yet
    "IncorrectState",
    "InternalError",
    "InternalErrorException",
    "InternalException",
    "InternalFailure",
    "InternalServerError",
    "InternalServerException",
    "InternalServiceError",
    "InternalServiceException",
    "InvalidInstanceState",
    "InvalidState",
    "KMSThrottled",
    "KmsThrottled",
    "LimitExceededException",  # Cost Explorer's word for throttling
    "OperationAborted",
    "OverLimit",
    "PaginationTokenExpiredException",  # the whole is asked for anew
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "QueueDeletedRecently",
    "AWS.SimpleQueueService.QueueDeletedRecently",
    "ReplicatedWriteConflictException",
    "RequestAbortedException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ResourceInUseException",
    "ResourceNotReadyException",
    "S3FilesMountConnectivityException",
    "S3FilesMountTimeoutException",
    "ServerException",
    "ServerInternal",
    "ServiceException",
    "ServiceFailure",
    "ServiceUnavailable",
    "SlowDown",
    "SnapStartNotReadyException",
    "SnapStartTimeoutException",
    "SubnetIPAddressLimitReachedException",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "TooManyUpdates",
    "TransactionCanceledException",
    "TransactionConflictException",
    "TransactionInProgressException",
    "Unavailable",
)
QUOTA = (
    "AliasLimitExceededException",
    "AddressLimitExceeded",
    "AttachmentLimitExceeded",
    "InstanceLimitExceeded",
    "MaxFleetCountExceeded",
    "MaxIOPSLimitExceeded",
    "MaxSpotFleetRequestCountExceeded",
    "MaxSpotInstanceCountExceeded",
    "NetworkInterfaceLimitExceeded",
    "PrivateIpAddressLimitExceeded",
    "RequestResourceCountExceeded",
    "ResourceCountExceeded",
    "ResourceLimitExceeded",
    "VcpuLimitExceeded",
    "VolumeIOPSLimit",
    "VolumeLimitExceeded",
)
NO_CAPACITY = (
    "InsufficientAddressCapacity",
    "InsufficientCapacity",
    "InsufficientCapacityOnHost",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "InsufficientReservedInstancesCapacity",
    "InsufficientVolumeCapacity",
    "ReservationCapacityExceeded",
    "SpotMaxPriceTooLow",
    "UnavailableHostRequirements",
    "UnfulfillableCapacity",
    "Unsupported",  # a zone that does not sell the type now
    "VolumeTypeNotAvailableInZone",
)
ALREADY_DONE = (
    "AlreadyExistsException",
    "BucketAlreadyOwnedByYou",
    "ConditionalCheckFailedException",  # somebody was faster
    "DryRunOperation",  # it would have been done
    "DurableExecutionAlreadyStartedException",
    "EntityAlreadyExists",
    "IdempotentInstanceTerminated",  # this token launched before: what it launched has ended since
    "IdempotentParameterMismatch",  # this token launched before: what it launched is there
    "IdempotentParameterMismatchException",
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateName.AlreadyExistsException",
    "InvalidPermission.Duplicate",
    "ParameterAlreadyExists",
    "QueueAlreadyExists",
    "QueueNameExists",
    "ResourceConflictException",
    "ResourceExistsException",
    "TokenAlreadyExistsException",
)
UNAUTHORIZED = (
    "AccessDenied",
    "AccessDeniedException",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthFailure",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "Blocked",
    "EC2AccessDeniedException",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidSecurity.RequestHasExpired",
    "InvalidToken",
    "KMSAccessDeniedException",
    "KmsAccessDenied",
    "KmsOptInRequired",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "NotSignedUp",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
)
MISCONFIGURED = (
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "NotImplemented",
    "PolicyEvaluation",
)
"""Mistakes that AWS answers with a 5xx; of those that it answers with a 4xx none need be named."""
MISTAKES = ("Incompatible", "Invalid", "Malformed", "Missing", "Unknown", "Unsupported")
"""Beginnings of codes of a request that is wrong as it stands, where no table above has the code."""

NOT_THERE = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "InvalidInstanceID.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "ImageNotFoundException",
        "NoSuchEntity",
        "NoSuchResourceException",
        "NotFoundException",
        "ParameterNotFound",
        "QueueDoesNotExist",
        "RepositoryNotFoundException",
        "ResourceNotFoundException",
    }
)
"""Codes that say that what was named does not exist: all that who removes things wants to hear."""
