"""The invariants of the core, one checker for each, over simulated clusters.

`CHECKERS` is the table of all of them. `watch` sets them upon a network before its first step; what
they find is in `Scene.violations`. When the faults have stopped, `Scene.disquiet` tells what is not yet
as it must be at rest.
"""

from bmgd.chaos.history import History
from bmgd.sim.checkers.aborting import UnfinishedAreAborted
from bmgd.sim.checkers.accepting import BroadcastsAreTaken
from bmgd.sim.checkers.acknowledging import NodesAcknowledgeWhatCame
from bmgd.sim.checkers.all_or_none import AllHaveItOrNone
from bmgd.sim.checkers.answered import SegmentsAreAnswered
from bmgd.sim.checkers.answers import AnswersAreTrue, VetoesWin
from bmgd.sim.checkers.assigning import JoinersAreGivenIds
from bmgd.sim.checkers.backends import BackendsAgree
from bmgd.sim.checkers.best_effort import BestEffortIsCounted
from bmgd.sim.checkers.bounds import BoundsHold
from bmgd.sim.checkers.broadcasts import (
    AudiencesNeverChange,
    ConfirmedMeansRetained,
    CoversArePartedOnce,
    MulticastsReachOnlyWhomTheyName,
    StableIsTold,
)
from bmgd.sim.checkers.closing import AccusedAreTold, FormerLivesAreCutOff, LinksCloseByRule
from bmgd.sim.checkers.comparing import NeighborsAreHeard
from bmgd.sim.checkers.configured import SettingsAreAsConfigured
from bmgd.sim.checkers.contents import ContentsAreWhatTheySay
from bmgd.sim.checkers.control_frames import ControlFramesMeanWhatTheySay
from bmgd.sim.checkers.copy_relay import WhoIsAskedInVainAsksOthers
from bmgd.sim.checkers.crowding import HealsInTime
from bmgd.sim.checkers.cut_off import CutOffIsFound
from bmgd.sim.checkers.deadlines import DeadlinesHaveSubjects
from bmgd.sim.checkers.detection import (
    LateNodesReset,
    NoFalseDeath,
    SuspicionsHaveAReason,
    VerdictsAreProven,
)
from bmgd.sim.checkers.dialled import DialsConclude
from bmgd.sim.checkers.differing import BeginningsTellOfTheGone, DifferencesAreCompared
from bmgd.sim.checkers.doubts import DoubtHasAReason
from bmgd.sim.checkers.economy import OnlyWhatLacksIsSentAgain
from bmgd.sim.checkers.evictions import EvictionsAreTold
from bmgd.sim.checkers.flooded import FloodsAreSlowed
from bmgd.sim.checkers.frames import FramesMeanWhatTheySay
from bmgd.sim.checkers.heard import AnswersAreHeeded
from bmgd.sim.checkers.held import HeldHellosHaveAReason
from bmgd.sim.checkers.hellos import HellosMeanWhatTheySay
from bmgd.sim.checkers.hints import BestEffortIsTaken, HintsAreHeeded, NewWaysAreTaken
from bmgd.sim.checkers.in_time import DetectionIsInTime
from bmgd.sim.checkers.kept_ids import IdsAreKept
from bmgd.sim.checkers.leaving import LeavingDrains
from bmgd.sim.checkers.linking import (
    LinksLoseNothing,
    OutboxesAreBounded,
    StepsAreBounded,
    UrgentOvertakesBulk,
)
from bmgd.sim.checkers.lives import AccusationIsAnswered, ExitsHaveAReason, LivesGrow
from bmgd.sim.checkers.log_lines import LogLinesAreTrue
from bmgd.sim.checkers.looks import LooksAreTrue
from bmgd.sim.checkers.losses import LossesAreTold
from bmgd.sim.checkers.malformed import BadHellosAreRefused, BadInputEndsItsOwnLink
from bmgd.sim.checkers.meetings import MeetingsAreTold
from bmgd.sim.checkers.memberships import (
    DigestsMeanMemberships,
    RanksAreABijection,
    RecordsAreJoined,
)
from bmgd.sim.checkers.memories import MemoriesAreOfUse
from bmgd.sim.checkers.messages import MessagesAreTakenOnce
from bmgd.sim.checkers.multicasts import BodiesCrossLinksOnce, EntriesArePartedOnce, WaysAreShared
from bmgd.sim.checkers.needed import SourcesSendWhatIsMissed
from bmgd.sim.checkers.noted import WhatCameIsNoted
from bmgd.sim.checkers.observed import ClosedStreamsEnd, ExactLinksAreExact
from bmgd.sim.checkers.orders import (
    DialsAreSingle,
    HellosAreAnsweredByRule,
    OrdersCanBeDone,
    RequestsAreAnsweredOnce,
    SnapshotsAreCurrent,
)
from bmgd.sim.checkers.orphans import NeighborsAreAskedAnew
from bmgd.sim.checkers.own_words import OwnWordsAreTrue
from bmgd.sim.checkers.pacing import OwnBulkWaits, StepsOfStreamsAreBounded
from bmgd.sim.checkers.pages import PagesFollowEachOther
from bmgd.sim.checkers.patience import DeadlinesLieAhead, PatienceFollowsTheOwnLag
from bmgd.sim.checkers.prompt import AcksComeInTime
from bmgd.sim.checkers.readers import LongMessagesAreWhole, ReadersGetEachOnce
from bmgd.sim.checkers.reasons import ErrorsHaveTheirReason
from bmgd.sim.checkers.recounted import CountsAreTrue
from bmgd.sim.checkers.registered import ProgramsAreKnown
from bmgd.sim.checkers.releases import FeaturesAreInCommon, OlderAreSpared, OlderAreTold
from bmgd.sim.checkers.renewed import LinksAreRenewed
from bmgd.sim.checkers.reports import ReportsAreTrue
from bmgd.sim.checkers.requests import RequestsHaveOneOutcome, RoomOfAnswersIsGivenBack
from bmgd.sim.checkers.rest import (
    LinksAreTheHealedGraph,
    NothingIsLeftOver,
    RestIsQuiet,
    SurvivorsAgree,
)
from bmgd.sim.checkers.room import BroadcastBoundsHold
from bmgd.sim.checkers.scene import Checker, Scene
from bmgd.sim.checkers.searches import SearchesVisitOnce
from bmgd.sim.checkers.shown import ReadersSeeEverything
from bmgd.sim.checkers.sides import OneSideGoesOn
from bmgd.sim.checkers.stalling import SlowReadersStallNobody
from bmgd.sim.checkers.starving import StarvingAreFed
from bmgd.sim.checkers.stated import NumbersAreAsStated
from bmgd.sim.checkers.streams import AcksAreHonest, SourcesKeepTheirCredit
from bmgd.sim.checkers.surveyed import AskedAreHeard
from bmgd.sim.checkers.telling import (
    ChangesAreFlooded,
    HeartbeatsArePaced,
    LinksBeginWithADigest,
    NoticesAreWellFormed,
    QuestionsAreAnswered,
)
from bmgd.sim.checkers.unusable import UnusableAreRefused
from bmgd.sim.checkers.values import ClaimsMakeNoRoom, FilesHoldWhatWasWritten
from bmgd.sim.checkers.waits import WaitsAreAsStated
from bmgd.sim.network import Network

CHECKERS: tuple[type[Checker], ...] = (
    RecordsAreJoined,
    LivesGrow,
    AccusationIsAnswered,
    ExitsHaveAReason,
    IdsAreKept,
    EvictionsAreTold,
    LeavingDrains,
    DigestsMeanMemberships,
    RanksAreABijection,
    OneSideGoesOn,
    HealsInTime,
    ChangesAreFlooded,
    LinksBeginWithADigest,
    BeginningsTellOfTheGone,
    MeetingsAreTold,
    HeartbeatsArePaced,
    DifferencesAreCompared,
    QuestionsAreAnswered,
    PagesFollowEachOther,
    NoticesAreWellFormed,
    JoinersAreGivenIds,
    VerdictsAreProven,
    SuspicionsHaveAReason,
    VetoesWin,
    AnswersAreTrue,
    LateNodesReset,
    DeadlinesLieAhead,
    WaitsAreAsStated,
    PatienceFollowsTheOwnLag,
    NoFalseDeath,
    DetectionIsInTime,
    CutOffIsFound,
    LinksCloseByRule,
    FormerLivesAreCutOff,
    AccusedAreTold,
    OrdersCanBeDone,
    DialsAreSingle,
    DialsConclude,
    HellosAreAnsweredByRule,
    HeldHellosHaveAReason,
    HellosMeanWhatTheySay,
    FramesMeanWhatTheySay,
    ControlFramesMeanWhatTheySay,
    ContentsAreWhatTheySay,
    FilesHoldWhatWasWritten,
    ClaimsMakeNoRoom,
    BadHellosAreRefused,
    BadInputEndsItsOwnLink,
    FloodsAreSlowed,
    RequestsAreAnsweredOnce,
    UnusableAreRefused,
    SnapshotsAreCurrent,
    BackendsAgree,
    MessagesAreTakenOnce,
    DoubtHasAReason,
    ErrorsHaveTheirReason,
    AcksAreHonest,
    SegmentsAreAnswered,
    AcksComeInTime,
    StarvingAreFed,
    SourcesKeepTheirCredit,
    OnlyWhatLacksIsSentAgain,
    AnswersAreHeeded,
    OwnBulkWaits,
    HintsAreHeeded,
    NewWaysAreTaken,
    BestEffortIsTaken,
    ClosedStreamsEnd,
    ReadersGetEachOnce,
    LongMessagesAreWhole,
    UnfinishedAreAborted,
    RequestsHaveOneOutcome,
    RoomOfAnswersIsGivenBack,
    LossesAreTold,
    StepsOfStreamsAreBounded,
    SearchesVisitOnce,
    LinksLoseNothing,
    UrgentOvertakesBulk,
    OutboxesAreBounded,
    StepsAreBounded,
    CoversArePartedOnce,
    AudiencesNeverChange,
    ReadersSeeEverything,
    MulticastsReachOnlyWhomTheyName,
    BestEffortIsCounted,
    EntriesArePartedOnce,
    BodiesCrossLinksOnce,
    WaysAreShared,
    ConfirmedMeansRetained,
    ReportsAreTrue,
    SourcesSendWhatIsMissed,
    OwnWordsAreTrue,
    NodesAcknowledgeWhatCame,
    StableIsTold,
    SlowReadersStallNobody,
    BroadcastBoundsHold,
    BroadcastsAreTaken,
    WhatCameIsNoted,
    NeighborsAreAskedAnew,
    NeighborsAreHeard,
    WhoIsAskedInVainAsksOthers,
    AllHaveItOrNone,
    OlderAreSpared,
    OlderAreTold,
    FeaturesAreInCommon,
    ProgramsAreKnown,
    LooksAreTrue,
    AskedAreHeard,
    LogLinesAreTrue,
    BoundsHold,
    CountsAreTrue,
    NumbersAreAsStated,
    SettingsAreAsConfigured,
    DeadlinesHaveSubjects,
    MemoriesAreOfUse,
    SurvivorsAgree,
    LinksAreTheHealedGraph,
    LinksAreRenewed,
    ExactLinksAreExact,
    NothingIsLeftOver,
    RestIsQuiet,
)

__all__ = ["CHECKERS", "Checker", "Scene", "inspect", "watch"]


def inspect(network: Network, history: History) -> Scene:
    """All checkers, for a `Simulation` to set upon its network."""
    return Scene(network, CHECKERS)


def watch(network: Network) -> Scene:
    """Set all checkers upon a network whose hosts have not made a step yet."""
    scene = Scene(network, CHECKERS)
    network.watchers.append(scene)
    return scene
